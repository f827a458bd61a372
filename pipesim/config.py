"""Typed schemas of ``conf/`` and how a composed config becomes a ``Point``: the one place where human units become SI.

Besides ``experiments/``, the sweeper plugin, ``compose`` and the schemas in ``demo_config`` only this module knows Hydra.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf

from pipesim import checks, cluster_parts, safe_config, specs
from pipesim.checks import Invalid
from pipesim.demo_config import DemoConf
from pipesim.grid_config import GridConf
from pipesim.legality import megatron_layout
from pipesim.schedules import canonical_name
from pipesim.spec_config import ClusterConf, CostsConf, ModelConf, ParallelConf, ScheduleConf, StackConf, TrainingConf
from pipesim.specs import Point
from pipesim.study_config import EngineConf, StudyConf
from pipesim.task_config import TaskConf

_BESIDE, _INSTALLED = Path(__file__).parents[1] / "conf", Path(__file__).parent / "conf"
CONF_DIR = _BESIDE if (_BESIDE / "config.yaml").exists() else _INSTALLED
"""The config groups: beside the package in a checkout, inside it where it is installed."""


@dataclass
class Config:
    lang: str = "en"
    model: ModelConf = field(default_factory=ModelConf)
    cluster: ClusterConf = field(default_factory=ClusterConf)
    parallel: ParallelConf = field(default_factory=ParallelConf)
    training: TrainingConf = field(default_factory=TrainingConf)
    schedule: ScheduleConf = field(default_factory=ScheduleConf)
    stack: StackConf = field(default_factory=StackConf)
    costs: CostsConf = field(default_factory=CostsConf)
    demo: DemoConf | None = None
    task: TaskConf | None = None
    headroom: float = 0.1
    measurements: str | None = None
    grid: GridConf | None = None
    study: StudyConf = field(default_factory=StudyConf)
    engine: EngineConf = field(default_factory=EngineConf)
    resume: str | None = None
    resume_anyway: bool = False
    fail_fast: bool = False


def register_schema() -> None:
    """Makes ``schema`` known to Hydra; ``conf/config.yaml`` builds on it, so every group is checked while composing."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=Config)


def keys(schema: Any = Config) -> Iterator[str]:
    """Every key of the config, dotted, the groups' own too, in order; what a demo has is left out."""
    types = get_type_hints(schema)
    for each in dataclasses.fields(schema):
        yield each.name
        kinds = () if get_origin(types[each.name]) is list else (types[each.name], *get_args(types[each.name]))
        inside = next(filter(dataclasses.is_dataclass, kinds), None)
        if inside is not None and inside is not DemoConf:
            yield from (f"{each.name}.{key}" for key in keys(inside))


def refuse_unknown(config: DictConfig) -> None:
    """Raises OmegaConf's key error for keys that the schema lacks, which ``+key=value`` can add."""
    own = {key: value for key, value in OmegaConf.to_container(config).items() if key != "hydra"}  # type: ignore[union-attr]
    OmegaConf.merge(OmegaConf.structured(Config), own)


def plain(config: DictConfig) -> dict[str, Any]:
    """The resolved config without Hydra's own part. Raises ``Invalid`` naming every key that has no value."""
    own = {key: config._get_node(key) for key in config if key != "hydra"}
    safe_config.refuse_code(OmegaConf.to_container(OmegaConf.create(own), resolve=False))
    missing = sorted(OmegaConf.missing_keys(OmegaConf.create(own)))
    if missing:
        raise Invalid([f"{key} is missing: it must be given." for key in missing])
    found = {str(key): _container(node) for key, node in own.items()}
    if found["cluster"]["parts"]:
        parts = _parts(found["cluster"]["parts"])
        given = {key: value for key, value in found["cluster"].items() if value is not None}
        found["cluster"] |= cluster_parts.derived(parts) | given | {"parts": parts}
    return found


LAYOUT_GROUPS = ("model", "cluster", "parallel", "training", "schedule", "stack", "costs")
"""What a layout is made of."""


def changed(config: Mapping[str, Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A plain config with dotted keys set, or whole groups to a choice of ``conf/`` by its name.

    Raises ``Invalid``, which says ``where`` they were asked, or OmegaConf's errors for keys and types the schema lacks.
    """
    found = OmegaConf.merge(OmegaConf.structured(Config), dict(config))
    assert isinstance(found, DictConfig)
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inside = isinstance(value, Mapping) and "." not in key
        flat |= {f"{key}.{name}": each for name, each in value.items()} if inside else {key: value}
    for key, value in flat.items():
        group, _, name = key.partition(".")
        if group not in LAYOUT_GROUPS:
            near, there = checks.suggest(group, LAYOUT_GROUPS), ", ".join(LAYOUT_GROUPS)
            raise Invalid([f"{where}: {key} is no part of a layout; its keys begin with {there}.{near}"])
        if name:
            OmegaConf.update(found, key, value)
        else:
            found[group] = OmegaConf.merge(OmegaConf.structured(SCHEMAS[group]), _choice(group, value, where))
    return plain(found)


SCHEMAS: dict[str, Any] = dict(
    zip(
        LAYOUT_GROUPS,
        (ModelConf, ClusterConf, ParallelConf, TrainingConf, ScheduleConf, StackConf, CostsConf),
        strict=True,
    )
)
"""Of each group of a layout the keys, their types and defaults."""


def _choice(group: str, name: Any, where: str) -> Any:
    name = (canonical_name(name) or name) if group == "schedule" else name
    there = [path.stem for path in sorted((CONF_DIR / group).glob("*.yaml"))]
    if name not in there:
        raise Invalid(
            [f"{where}: {group}={name} is no choice; there are: {', '.join(there)}.{checks.suggest(str(name), there)}"]
        )
    return OmegaConf.load(CONF_DIR / group / f"{name}.yaml")


def _container(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node._value()


def build(config: Mapping[str, Any]) -> Point:
    """The point that a plain config asks for, in SI units. Raises ``Invalid`` with every value that is out of range."""
    problems: list[str] = []
    parts: dict[str, Any] = {}
    for name, make in (
        ("model", build_model),
        ("cluster", build_cluster),
        ("layout", lambda conf: _layout(conf, config["model"]["layers"])),
        ("training", _training),
        ("stack", build_stack),
        ("costs", build_costs),
    ):
        try:
            parts[name] = make(config["parallel" if name == "layout" else name])
        except Invalid as error:
            problems += error.problems
    if problems:
        raise Invalid(problems)
    name = config["schedule"]["name"]
    options = tuple((key, value) for key, value in config["schedule"].items() if key != "name" and value is not None)
    return Point(schedule=canonical_name(name) or name, options=options, **parts)


def build_model(conf: Mapping[str, Any]) -> specs.ModelSpec:
    values = dict(conf)
    if not values["heads"] or values["heads"] < 1:
        raise Invalid([f"model.heads={values['heads']} must be at least 1."])
    if values["head_dim"] is None and values["hidden"] % values["heads"]:
        raise Invalid(
            [
                f"model.heads={values['heads']} does not divide model.hidden={values['hidden']}, and model.head_dim is null. "
                f"Nearest: model.heads={checks.nearest_divisors(max(1, values['hidden']), values['heads'])}."
            ]
        )
    defaults = {
        "kv_heads": values["heads"],
        "head_dim": values["hidden"] // values["heads"],
        "ffn": 4 * values["hidden"],
    }
    values |= {key: value for key, value in defaults.items() if values[key] is None}
    values["mla"] = values["mla"] and specs.Mla(**values["mla"])
    values["moe"] = values["moe"] and specs.Moe(**values["moe"])
    return specs.ModelSpec(**values)


def build_cluster(conf: Mapping[str, Any]) -> specs.ClusterSpec:
    if conf.get("parts"):
        parts = _parts(conf["parts"])
        cluster_parts.check_keys({**conf, "parts": parts})
        return cluster_parts.joined({**conf, "parts": parts}, [build_cluster(part["cluster"]) for part in parts])
    cluster_parts.check_keys(conf)

    def link(where: str) -> specs.LinkSpec:
        return specs.LinkSpec(
            bandwidth_bytes_per_s=conf[f"{where}_gb_per_s"] * 1e9, latency_s=conf[f"{where}_latency_us"] * 1e-6
        )

    return specs.ClusterSpec(
        name=conf["name"],
        chip=conf["chip"],
        gpus=conf["gpus"],
        gpus_per_node=conf["gpus_per_node"],
        peak_flops_per_s={precision: tflops * 1e12 for precision, tflops in conf["peak_tflops"].items()},
        multiprocessors=conf["multiprocessors"],
        flash_efficiency=conf["flash_efficiency"],
        memory_bytes=conf["memory_gb"] * 1e9,
        hbm_bytes_per_s=conf["hbm_gb_per_s"] * 1e9,
        intra_node=link("intra_node"),
        inter_node=link("inter_node"),
        network_decay=conf["network_decay"],
        network_flat_nodes=conf["network_flat_nodes"],
        watts_per_gpu=conf["watts_per_gpu"],
        usd_per_gpu_hour=conf["usd_per_gpu_hour"],
        source=conf["source"],
    )


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a cluster with the named clusters spelt out, so that a plain config holds all that decides a row."""
    return cluster_parts.spelt_out(
        parts, _named_cluster, [path.stem for path in sorted((CONF_DIR / "cluster").glob("*.yaml"))]
    )


def _named_cluster(name: str) -> dict[str, Any] | None:
    """The config of a choice of the group ``cluster``, found as Hydra does where it is at work; None if there is none."""
    from hydra.core.global_hydra import GlobalHydra

    file, hydra = None, GlobalHydra.instance()
    if name.isidentifier() and hydra.is_initialized():
        loader: Any = hydra.config_loader()
        found = loader.repository.load_config(f"cluster/{name}")
        file = None if found is None else found.config
    elif name.isidentifier() and (CONF_DIR / "cluster" / f"{name}.yaml").exists():
        file = OmegaConf.load(CONF_DIR / "cluster" / f"{name}.yaml")
    return None if file is None else _container(OmegaConf.merge(OmegaConf.structured(ClusterConf), file))


def library(group: str) -> dict[str, Any]:
    """Every choice of the groups ``cluster`` and ``stack`` as a spec, of ``costs`` as constants, and of ``model`` as a
    plain config, by file name.
    """
    kinds: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "model": (ModelConf, dict),
        "cluster": (ClusterConf, build_cluster),
        "stack": (StackConf, build_stack),
        "costs": (CostsConf, build_costs),
    }
    schema, make = kinds[group]
    return {name: make(conf) for name, conf in _files(group, schema).items()}


def stack_files() -> dict[str, dict[str, Any]]:
    """Every choice of ``stack`` as a plain config, by file name."""
    return _files("stack", StackConf)


def names(group: str) -> list[str]:
    """The choices of a group, by file name."""
    return [path.stem for path in sorted((CONF_DIR / group).glob("*.yaml"))]


def _files(group: str, schema: Any) -> dict[str, dict[str, Any]]:
    return {
        name: _container(
            OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.load(CONF_DIR / group / f"{name}.yaml"))
        )
        for name in names(group)
    }


def _layout(conf: Mapping[str, Any], layers: int) -> specs.ParallelLayout:
    values = dict(conf)
    partition = values["partition"]
    if isinstance(partition, list):
        values["partition"] = tuple(partition)
    elif not isinstance(partition, str):
        said = "null" if partition is None else repr(partition)
        raise Invalid([f"parallel.partition={said} must be {specs.PARTITIONS}. Nearest: balanced."])
    elif megatron_layout.is_meant(partition):
        values["partition"] = megatron_layout.partition(partition, layers)
    return specs.ParallelLayout(**values)


def _training(conf: Mapping[str, Any]) -> specs.Training:
    values = dict(conf)
    again = values["recompute_layers"]
    if isinstance(again, list):
        values["recompute_layers"] = tuple(again)
    elif again is not None and not isinstance(again, int):
        raise Invalid([f"training.recompute_layers={again!r} must be null, layers of every stage, or a list of them."])
    return specs.Training(**values)


def build_stack(conf: Mapping[str, Any]) -> specs.StackSpec:
    values = dict(conf)
    for key in ("forward_launch", "backward_launch", "spanning_launch", "spanning_rank_launch", "hop_start"):
        values[f"{key}_s"] = values.pop(f"{key}_us") * 1e-6
    values["step_s"] = values.pop("step_ms") * 1e-3
    values["device_context_bytes"] = values.pop("device_context_gb") * 1e9
    values["own_reasons"] = tuple(values["own_reasons"])
    return specs.StackSpec(**values)


def build_costs(conf: Mapping[str, Any]) -> specs.CostConstants:
    values = {key: value for key, value in conf.items() if key != "source"}
    values["collective_start_s"] = values.pop("collective_start_us") * 1e-6
    return specs.CostConstants(**values)
