"""Every YAML of ``conf/`` composes and builds, says where its numbers come from, and leaves nothing unresolved."""

import copy
import dataclasses
import functools
import hashlib
import re

import pytest
from omegaconf import OmegaConf
from points import configs

from pipesim import compose, config, legality, spec_config, specs
from pipesim.checks import Invalid
from pipesim.expand import expand
from pipesim.plan.asked import axes
from pipesim.point_id import ASKED, point_id

GROUPS = {
    folder.name: sorted(path.stem for path in folder.glob("*.yaml"))
    for folder in sorted(config.CONF_DIR.iterdir())
    if folder.is_dir() and any(folder.glob("*.yaml"))
}


@pytest.fixture(scope="module")
def hydra():
    with compose.composer() as (make, loader):
        yield make, loader


@pytest.fixture(scope="module")
def default(hydra):
    return config.plain(hydra[0]([]))


@functools.cache
def load(group, name):
    return OmegaConf.to_container(OmegaConf.load(config.CONF_DIR / group / f"{name}.yaml"))


@functools.cache
def merged(schema, group, name):
    return OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), load(group, name)))


def leaves(value, key=""):
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from leaves(each, f"{key}.{name}")
    else:
        yield key, value


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(max(len(names) for group, names in GROUPS.items() if group != "model")))
def test_every_choice_of_every_group_composes_and_builds(hydra, turn):
    """Turn i takes the i-th choice of each group, so that together the turns take every YAML but some models."""
    chosen = {group: GROUPS[group][turn % len(GROUPS[group])] for group in (*ASKED, "demo", "grid")}
    composition = hydra[0]([f"{group}={name}" for group, name in chosen.items()])
    config.refuse_unknown(composition)
    plain = config.plain(composition)
    point = config.build(plain)
    assert (point.model.name, point.cluster.name) == (chosen["model"], chosen["cluster"])
    assert (point.schedule, point.stack.name, point.costs.kind) == (
        chosen["schedule"],
        chosen["stack"],
        chosen["costs"],
    )
    assert point.model.source.strip()
    assert point.cluster.source.strip()
    unresolved = [key for key, value in leaves(plain) if isinstance(value, str) and ("???" in value or "${" in value)]
    assert unresolved == []


@pytest.mark.parametrize("name", GROUPS["model"])
def test_every_model_fits_the_schema_and_builds_with_every_cluster(default, name):
    file = config.CONF_DIR / "model" / f"{name}.yaml"
    assert "@package" not in file.read_text(encoding="utf-8")  # so that Hydra merges it as is done here
    model = OmegaConf.merge(OmegaConf.structured(spec_config.ModelConf), OmegaConf.load(file))
    assert OmegaConf.missing_keys(model) == set()
    for cluster in GROUPS["cluster"]:
        asked = default | {
            "model": OmegaConf.to_container(model),
            "cluster": merged(spec_config.ClusterConf, "cluster", cluster),
        }
        point = config.build(asked)
        assert point.model.layers * point.model.hidden * point.cluster.gpus > 0
        assert (point.model.name, point.cluster.name) == (name, cluster)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS["grid"])
def test_every_value_of_every_grid_builds(hydra, name):
    composition = hydra[0]([f"grid={name}"])
    assert composition.grid.name == name
    for axis in axes.read(OmegaConf.to_container(composition.grid.axes)):
        texts = tuple(tuple(map(compose.typed, value)) for value in axis.values)
        found = configs(expand(*hydra, [], [axis._replace(values=texts)]))
        assert len({point_id(each) for each in found}) == len(found) >= 1
        for each in found:
            config.build(each)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS["experiment"])
def test_every_experiment_composes_and_its_axes_build(hydra, name):
    hydra_own = OmegaConf.load(config.CONF_DIR / "experiment" / f"{name}.yaml").get("hydra")
    params = hydra_own.sweeper.params if hydra_own else {}
    texts = {key: str(values).split(",") for key, values in params.items()}
    for each in configs(compose.expand(*hydra, [f"experiment={name}"], texts)):
        config.build(each)


def test_every_group_is_named_in_the_defaults_and_none_is_empty():
    defaults = OmegaConf.to_container(OmegaConf.load(config.CONF_DIR / "config.yaml"))["defaults"]
    named = {key for entry in defaults if isinstance(entry, dict) for key in entry}
    assert set(GROUPS) | {"task"} == {group for group in named if not group.startswith("override ")}


@pytest.mark.parametrize("group", ["model", "cluster", "schedule", "stack", "grid"])
def test_a_file_is_called_as_what_it_holds(group):
    for name in GROUPS[group]:
        assert load(group, name)["name"] == name


@pytest.mark.parametrize("group", ["model", "cluster"])
def test_every_model_and_cluster_says_where_its_numbers_come_from(group):
    for name in GROUPS[group]:
        assert len(load(group, name)["source"].split()) >= 4, f"conf/{group}/{name}.yaml"


def test_the_default_is_bloom_as_it_was_trained(default):
    """Le Scao et al., "BLOOM", 2022: Table 3 (70 layers, 14336, 112 heads, 2048 x 2048 tokens), section 3.4 (layout)."""
    point = legality.resolve(config.build(default))
    model, layout, training = point.model, point.layout, point.training
    assert (model.layers, model.hidden, model.heads, model.context) == (70, 14336, 112, 2048)
    assert (model.ffn, model.head_dim, model.kv_heads) == (4 * 14336, 128, 112)
    assert (layout.t, layout.p, layout.d, point.cluster.gpus) == (4, 12, 8, 384)
    assert (training.micro_batch, training.global_batch, training.precision) == (2, 2048, "bf16")
    assert legality.micro_batches(point) == 128
    assert layout.partition == (6,) * 12  # section 3.4: the embedding and the head count as a layer each


def test_units_of_the_yaml_become_si(default):
    asked = copy.deepcopy(default)
    asked["cluster"] |= {
        "peak_tflops": {"bf16": 312.0}, "memory_gb": 80.0, "hbm_gb_per_s": 2039.0,
        "intra_node_gb_per_s": 300.0, "intra_node_latency_us": 5.0, "inter_node_gb_per_s": 50.0, "inter_node_latency_us": 20.0,
    }  # fmt: skip
    asked["stack"] |= {"forward_launch_us": 500.0, "hop_start_us": 67.0, "step_ms": 5.0, "device_context_gb": 1.25}
    asked["costs"] |= {"collective_start_us": 27.0}
    point = config.build(asked)
    cluster = point.cluster
    assert cluster.peak_flops_per_s == {"bf16": 3.12e14}
    assert (cluster.memory_bytes, cluster.hbm_bytes_per_s) == (80e9, 2.039e12)
    assert (cluster.intra_node.bandwidth_bytes_per_s, cluster.inter_node.bandwidth_bytes_per_s) == (3e11, 5e10)
    assert cluster.intra_node.latency_s == pytest.approx(5e-6, rel=1e-15)
    assert cluster.inter_node.latency_s == pytest.approx(20e-6, rel=1e-15)
    assert point.stack.forward_launch_s == pytest.approx(5e-4, rel=1e-15)
    assert point.stack.hop_start_s == pytest.approx(67e-6, rel=1e-15)
    assert point.stack.step_s == pytest.approx(5e-3, rel=1e-15)
    assert point.stack.device_context_bytes == 1.25e9
    assert point.costs.collective_start_s == pytest.approx(27e-6, rel=1e-15)


@pytest.mark.parametrize(
    ("conf", "spec"),
    [
        (spec_config.ModelConf, specs.ModelSpec),
        (spec_config.MlaConf, specs.Mla),
        (spec_config.MoeConf, specs.Moe),
        (spec_config.ParallelConf, specs.ParallelLayout),
        (spec_config.TrainingConf, specs.Training),
    ],
)
def test_a_schema_has_the_keys_of_its_spec(conf, spec):
    assert [each.name for each in dataclasses.fields(conf)] == [each.name for each in dataclasses.fields(spec)]


@pytest.mark.parametrize("conf", [spec_config.ParallelConf, spec_config.TrainingConf])
def test_a_default_stands_alike_in_schema_and_spec(conf):
    spec = {spec_config.ParallelConf: specs.ParallelLayout, spec_config.TrainingConf: specs.Training}[conf]
    for ours, theirs in zip(dataclasses.fields(conf), dataclasses.fields(spec), strict=True):
        assert ours.default == theirs.default or ours.default == "???"


@pytest.mark.parametrize(
    ("conf", "spec"), [(spec_config.StackConf, specs.StackSpec), (spec_config.CostsConf, specs.CostConstants)]
)
def test_constants_have_the_keys_of_their_spec_in_human_units(conf, spec):
    units = {"_us": "_s", "_ms": "_s", "_gb": "_bytes"}

    def si(name):
        unit = next((each for each in units if name.endswith(each)), None)
        return name.removesuffix(unit) + units[unit] if unit else name

    wanted = {
        si(each.name): each.default_factory() if callable(each.default_factory) else each.default
        for each in dataclasses.fields(conf)
        if hasattr(spec, each.name) or each.name != "source"
    }
    assert list(wanted) == [each.name for each in dataclasses.fields(spec)]
    for field in dataclasses.fields(spec):
        default = field.default_factory() if callable(field.default_factory) else field.default
        assert wanted[field.name] == default or wanted[field.name] == "???"


def test_a_library_holds_every_file_of_a_group_as_a_spec():
    assert set(config.library("cluster")) == set(GROUPS["cluster"])
    assert set(config.library("stack")) == set(GROUPS["stack"])
    assert config.library("costs")["lecture"] == specs.CostConstants(kind="lecture")


def test_every_missing_key_is_named_at_once(default):
    composition = OmegaConf.merge(OmegaConf.structured(config.Config), copy.deepcopy(default))
    composition.model.layers = composition.training.micro_batch = "???"
    with pytest.raises(Invalid) as caught:
        config.plain(composition)
    assert [problem.split()[0] for problem in caught.value.problems] == ["model.layers", "training.micro_batch"]


def test_every_group_that_is_out_of_range_is_named_at_once(default):
    asked = copy.deepcopy(default)
    asked["model"]["layers"] = asked["parallel"]["t"] = asked["training"]["micro_batch"] = 0
    asked["cluster"]["memory_gb"] = asked["costs"]["hbm_efficiency"] = -1.0
    with pytest.raises(Invalid) as caught:
        config.build(asked)
    named = " ".join(caught.value.problems)
    for key in ("model.layers", "cluster.memory_gb", "parallel.t", "training.micro_batch", "costs.hbm_efficiency"):
        assert f"{key}=" in named


def test_a_point_is_identified_by_everything_asked_and_by_nothing_else(default):
    same = copy.deepcopy(default)
    same |= {"lang": "zh", "study": {"dir": "x", "name": "y"}, "grid": {"name": "z", "axes": {}}}
    same["model"] = dict(reversed(same["model"].items()))
    assert point_id(same) == point_id(default)
    assert re.fullmatch("[0-9a-f]{16}", point_id(default))
    others = set()
    for group in ASKED:
        for key, value in default[group].items():
            changed = copy.deepcopy(default)
            changed[group][key] = not value if isinstance(value, bool) else f"{value}x"
            others.add(point_id(changed))
    assert len(others | {point_id(default)}) == 1 + sum(len(default[group]) for group in ASKED)


def test_a_point_id_is_the_sum_of_the_hashes_of_its_leaves():
    asked = {group: {"b": {"c": 1}, "a": "é"} for group in ASKED}
    texts = [text for group in ASKED for text in (f"{group}.b.c=1", f'{group}.a="\\u00e9"')]
    total = sum(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts)
    assert point_id(asked) == f"{total % 2**64:016x}"
