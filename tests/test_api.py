"""The Python interface: one layout as an estimate, many as a frame, mistakes as ``ValueError``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pipesim
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.results.schema import COLUMNS, SCHEMA, frame, table

CONTRACT = [
    "point_id",
    "status",
    "reason",
    "model",
    "cluster",
    "gpus",
    "t",
    "p",
    "d",
    "c",
    "e",
    "v",
    "schedule",
    "zero",
    "recompute",
    "sequence_parallel",
    "micro_batch",
    "global_batch",
    "num_microbatches",
    "params_per_gpu",
    "model_state_bytes",
    "activation_bytes",
    "memory_bytes",
    "memory_limit_bytes",
    "fits",
    "peak_inflight",
    "bubble_fraction",
    "bubble_overhead",
    "makespan_s",
    "dp_bytes_per_gpu",
    "tp_bytes_per_gpu",
    "pp_bytes_per_gpu",
    "dp_exposed_s",
    "step_time_s",
    "step_time_lo_s",
    "step_time_hi_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "hfu",
    "verdict",
]


@pytest.fixture(scope="module")
def bloom() -> pipesim.Estimate:
    return pipesim.estimate()


@pytest.fixture(scope="module")
def swept() -> pd.DataFrame:
    return pipesim.sweep(parallel={"t": [4, 5, 1], "p": [12, 6]}, costs=["lecture", "full"])


def test_without_arguments_bloom_is_estimated_as_it_was_trained(bloom: pipesim.Estimate) -> None:
    assert (bloom.model, bloom.cluster, bloom.schedule) == ("bloom_176b", "jean_zay_a100", "1f1b")
    assert (bloom.t, bloom.p, bloom.d, bloom.gpus, bloom.num_microbatches) == (4, 12, 8, 384, 128)
    assert (bloom.micro_batch, bloom.global_batch, bloom.zero, bloom.recompute) == (2, 2048, 1, "full")
    assert bloom.fits is True
    assert bloom.status == "ok"
    assert bloom.verdict == "compute"


def test_an_estimate_is_its_items(bloom: pipesim.Estimate) -> None:
    assert tuple(bloom.seconds) == TIME_ITEMS
    assert tuple(bloom.bytes) == MEMORY_ITEMS
    assert sum(bloom.seconds.values()) == bloom.step_time_s
    assert sum(bloom.bytes.values()) == bloom.memory_bytes


def test_an_estimate_has_every_column_of_the_contract(bloom: pipesim.Estimate) -> None:
    assert set(CONTRACT) <= set(COLUMNS) == set(bloom.row)
    for name in CONTRACT:
        assert getattr(bloom, name) == bloom.row[name]


def test_an_attribute_that_is_no_column_is_refused_with_those_there_are(bloom: pipesim.Estimate) -> None:
    with pytest.raises(AttributeError, match=r"no 'step_time'; it has: .*step_time_s"):
        _ = bloom.step_time
    assert not hasattr(bloom, "speed")


def test_an_estimate_cannot_be_changed(bloom: pipesim.Estimate) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        bloom.row = {}  # type: ignore[misc]


def test_every_argument_changes_what_is_estimated() -> None:
    changed = pipesim.estimate(
        model="llama2_7b", cluster="dgx_h100", parallel={"t": 2, "p": 2, "d": 3, "sequence_parallel": True},
        training={"micro_batch": 1, "global_batch": 24, "recompute": "none", "seq_length": 1024}, schedule="gpipe",
        costs="lecture",
    )  # fmt: skip
    asked = {
        "model": "llama2_7b", "cluster": "dgx_h100", "t": 2, "p": 2, "d": 3, "gpus": 12, "sequence_parallel": True,
        "micro_batch": 1, "global_batch": 24, "recompute": "none", "seq_length": 1024, "schedule": "gpipe",
        "costs": "lecture", "num_microbatches": 8, "peak_inflight": [8, 8],
    }  # fmt: skip
    assert {key: changed.row[key] for key in asked} == asked


def test_a_partition_is_a_list_of_units_on_stages() -> None:
    layout = {"t": 4, "p": 2, "d": 8, "partition": [30, 42]}
    assert pipesim.estimate(parallel=layout).stage_units == [30, 42]
    assert pipesim.estimate(parallel=layout | {"partition": (30, 42)}).stage_units == [30, 42]
    several = pipesim.sweep(parallel=layout | {"partition": [[30, 42], [36, 36]]})
    assert sorted(map(list, several["stage_units"])) == [[30, 42], [36, 36]]


def test_a_layout_that_does_not_fit_says_so_and_keeps_its_numbers() -> None:
    large = pipesim.estimate(parallel={"t": 1, "p": 6})
    assert large.fits is False
    assert large.status == "infeasible"
    assert large.reason.startswith(f"does not fit: rank {large.heaviest_rank} needs ")
    assert large.memory_bytes > large.memory_limit_bytes == 80e9
    assert large.step_time_s > 0


def test_every_broken_rule_reaches_the_caller_at_once() -> None:
    with pytest.raises(ValueError, match=r"parallel\.t=5") as caught:
        pipesim.estimate(parallel={"t": 5, "p": 7, "e": 2}, training={"precision": "fp8"})
    message = str(caught.value)
    for named in ("cluster.gpus=384", "model.heads=112", "parallel.e=2", "training.precision=fp8"):
        assert named in message
    with pytest.raises(ValueError, match=r"parallel\.zero=9 must be 0, 1, 2 or 3"):
        pipesim.estimate(parallel={"zero": 9})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"model": "bloom"}, "bloom_176b"),
        ({"cluster": "dgx_h10"}, "dgx_h100"),
        ({"schedule": "gpip"}, "gpipe"),
        ({"parallel": {"tt": 2}}, "parallel.tt"),
        ({"training": {"micro_batches": 2}}, "micro_batch"),
        ({"parallel": {"t": "four"}}, "parallel.t"),
        ({"overrides": ["seq_length=4096"]}, "Nearest: training.seq_length."),
        ({"overrides": ["+gpus=4"]}, "Nearest: cluster.gpus or task.plan.gpus."),
        ({"parallel": {"t": 2.5}}, "parallel.t"),
    ],
)
def test_a_name_or_key_that_is_none_is_a_value_error_that_names_the_nearest(
    arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is looked at
        pipesim.estimate(**arguments)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_list_given_to_an_estimate_is_refused_with_its_key() -> None:
    with pytest.raises(ValueError, match=r"parallel\.t"):
        pipesim.estimate(parallel={"t": [2, 4]})


def test_a_sweep_has_a_row_for_every_combination(swept: pd.DataFrame) -> None:
    assert len(swept) == 3 * 2 * 2
    assert list(swept.columns) == list(COLUMNS)
    assert swept["point_id"].is_unique
    told = (
        swept["t"].eq(5).map({True: "invalid", False: "ok"}).mask(swept["memory_bytes"].fillna(0) > 80e9, "infeasible")
    )
    assert swept["status"].tolist() == told.tolist()
    assert swept["status"].value_counts()["invalid"] == 4
    assert {"ok", "infeasible"} < set(swept["status"])


def test_a_sweep_is_sorted_and_its_order_does_not_depend_on_how_it_was_asked(swept: pd.DataFrame) -> None:
    keys = list(zip(swept["costs"], swept["t"], swept["p"], strict=True))
    assert keys == sorted(keys)
    again = pipesim.sweep(costs=["full", "lecture"], parallel={"p": [6, 12], "t": [1, 4, 5]})
    pd.testing.assert_frame_equal(swept, again)


def test_a_swept_row_is_the_estimate_of_that_layout_to_the_last_bit(
    swept: pd.DataFrame, bloom: pipesim.Estimate
) -> None:
    (index,) = swept.index[(swept["costs"] == "full") & (swept["t"] == 4) & (swept["p"] == 12)]
    alone = frame([bloom.row])
    pd.testing.assert_frame_equal(swept.loc[[index]].reset_index(drop=True), alone)


def test_whole_numbers_stay_whole_where_others_are_missing(swept: pd.DataFrame) -> None:
    invalid = swept[swept["status"] == "invalid"]
    assert invalid["d"].isna().all()
    assert invalid["step_time_s"].isna().all()
    assert invalid["reason"].str.contains("parallel.t=5").all()
    assert str(swept["d"].dtype) == "Int64"
    assert str(swept["fits"].dtype) == "boolean"
    assert swept["d"].dropna().tolist() == [64, 32, 16, 8] * 2


def test_a_row_says_how_long_its_sequences_were(bloom: pipesim.Estimate) -> None:
    assert bloom.seq_length == 2048  # the model's context, where nothing else was asked


def test_names_may_be_swept_as_well() -> None:
    models = pipesim.sweep(
        model=["llama2_7b", "llama2_13b"], cluster="dgx_a100", schedule=["1f1b", "gpipe"],
        parallel={"t": 8, "p": 1, "d": 8},
    )  # fmt: skip
    assert sorted(zip(models["model"], models["schedule"], strict=True)) == [
        ("llama2_13b", "1f1b"), ("llama2_13b", "gpipe"), ("llama2_7b", "1f1b"), ("llama2_7b", "gpipe"),
    ]  # fmt: skip


def test_a_point_is_known_by_what_was_asked() -> None:
    same = {pipesim.estimate(parallel={"t": 2, "p": 12}).point_id for _ in range(2)}
    other = pipesim.estimate(parallel={"t": 2, "p": 6}).point_id
    assert len(same) == 1
    assert other not in same
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in (*same, other))


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipesim.results.folder.new_study", lambda *_: pytest.fail("a study was begun"))
    pipesim.estimate()
    pipesim.sweep(parallel={"t": [4, 8]})
    assert list(tmp_path.iterdir()) == []


def test_schedules_are_made_read_and_simulated_by_name() -> None:
    assert set(pipesim.schedule_names()) >= {"naive", "gpipe", "1f1b"}
    schedule = pipesim.make_schedule("1f1b", p=4, m=8)
    assert pipesim.read_schedule(schedule.to_csv()) == schedule
    timeline = pipesim.simulate(schedule, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    assert timeline.makespan_s == (8 + 3) * 3
    assert timeline.bubble_overhead == pytest.approx(3 / 8)
    assert timeline.bubble_fraction == pytest.approx(3 / 11)
    assert timeline.peak_inflight == (4, 3, 2, 1)
    with pytest.raises(ValueError, match="gpipe"):
        pipesim.make_schedule("gpip", p=4, m=8)


def test_everything_promised_is_exported() -> None:
    assert set(pipesim.__all__) >= {
        "Estimate", "estimate", "sweep", "make_schedule", "read_schedule", "schedule_names", "simulate",
    }  # fmt: skip
    assert all(hasattr(pipesim, name) for name in pipesim.__all__)


def test_every_column_says_what_it_holds_and_has_a_type() -> None:
    assert SCHEMA.names == list(COLUMNS)
    for name, (kind, meaning) in COLUMNS.items():
        assert isinstance(meaning, str)
        unit = name.endswith(("_s", "_bytes"))
        assert not unit or "double" in str(kind), name


def test_a_table_takes_rows_in_any_order_and_with_holes() -> None:
    rows = [{"t": 2, "p": 1, "model": "b"}, {"t": 1, "model": "b"}, {"t": 1, "p": 1, "model": "a", "point_id": "x"}]
    forward, backward = table(rows), table(rows[::-1])
    assert forward.schema == SCHEMA
    assert forward.equals(backward)
    assert forward.column("t").to_pylist() == [1, 1, 2]
    assert forward.column("step_time_s").null_count == 3
    with pytest.raises(AssertionError, match="speed"):
        table([{"speed": 1}])


@pytest.mark.parametrize("word", ["grid=bloom_384", "demo=all", "experiment=validate", "hydra.run.dir=x"])
def test_what_is_no_layout_is_refused_from_python(word: str) -> None:
    with pytest.raises(ValueError, match=word):
        pipesim.estimate(overrides=[word])


def test_an_axis_without_values_is_told() -> None:
    with pytest.raises(ValueError, match=r"parallel\.t has no values"):
        pipesim.sweep(parallel={"t": []})


@pytest.mark.slow
def test_whatever_can_be_walked_through_is_an_axis() -> None:
    frames = [
        pipesim.sweep(parallel={"t": several, "p": np.int64(12)})
        for several in (
            [1, 2],
            (1, 2),
            range(1, 3),
            np.array([1, 2]),
            pd.Series([1, 2]),
            {1: "a", 2: "b"}.keys(),
            iter([1, 2]),
        )
    ]
    assert frames[0]["t"].tolist() == [1, 2]
    for each in frames[1:]:
        pd.testing.assert_frame_equal(each, frames[0])
    names = pipesim.sweep(model=pd.Series(["llama2_7b", "toy"]), parallel={"partition": np.array([36, 36]), "p": 2})
    assert names["model"].tolist() == ["llama2_7b", "toy"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"parallel": {"t": object()}}, r"parallel\.t=<object .* must be a name, a number, or several of them"),
        ({"parallel": 3}, "parallel=3 must be the name of a choice"),
        ({"schedule": range(3)}, r"schedule=range\(0, 3\) must be the name"),
        ({"parallel": {"t": np.array([1.5])}}, r"parallel\.t='1\.5' must be a whole number"),
        ({"overrides": ["parallel.t=1,2"]}, r"parallel\.t=1,2: an override has one value"),
        ({"overrides": "parallel.t=1"}, r"must be a list of words. Nearest: \['parallel.t=1'\]"),
    ],
)
def test_what_cannot_be_asked_is_refused_without_a_word_of_the_insides(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        pipesim.sweep(**asked)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None or error.value.__suppress_context__


LLAMA = {"name": "llama2_13b"}
SIZES: dict[str, Any] = {
    "parallel": {"t": 4, "p": 4, "d": 4}, "cluster": "dgx_a100", "training": {"global_batch": 64},
}  # fmt: skip
OWN = {"name": "mine", "layers": 40, "hidden": 5120, "heads": 40, "vocab": 32000, "context": 4096}


def test_a_mapping_that_names_a_choice_starts_from_it() -> None:
    named = pipesim.estimate(model="llama2_13b", **SIZES)
    assert pipesim.estimate(model=LLAMA, **SIZES).row == named.row
    deeper = pipesim.sweep(model=LLAMA | {"layers": [40, 48]}, **SIZES)
    assert deeper["step_time_s"].min() == named.step_time_s < deeper["step_time_s"].max()
    h100 = {"name": "dgx_h100", "gpus": 64}
    sized = pipesim.estimate(cluster="dgx_h100", overrides=["cluster.gpus=64"], parallel={"t": 4, "p": 4})
    assert pipesim.estimate(cluster=h100, parallel={"t": 4, "p": 4}).row == sized.row
    changed: dict[str, Any] = {
        "stack": {"name": "megatron_lm", "slack": 0.1}, "costs": {"kind": "full", "flops": "causal"},
    }  # fmt: skip
    same = ["stack.slack=0.1", "costs.flops=causal"]
    assert pipesim.estimate(**changed).row == pipesim.estimate(stack="megatron_lm", overrides=same).row


def test_a_mapping_of_another_name_is_a_whole_shape_with_the_usual_defaults(tmp_path: Path) -> None:
    own = pipesim.estimate(model=OWN, **SIZES)
    assert own.model == "mine"
    assert own.step_time_s != pipesim.estimate(model="llama2_13b", **SIZES).step_time_s  # which is gated
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "other.yaml").write_text("".join(f"{key}: {value}\n" for key, value in OWN.items()))
    assert pipesim.estimate(model="other", config_dir=tmp_path, **SIZES).row == own.row
    deeper = pipesim.sweep(model={"name": "other", "layers": [40, 44]}, config_dir=str(tmp_path), **SIZES)
    assert deeper["step_time_s"].min() == own.step_time_s
    with pytest.raises(ValueError, match=r"model=other is no choice; there are: bloom_176b, .*toy\."):
        pipesim.estimate(model="other")


def test_a_cluster_of_parts_is_a_mapping_too() -> None:
    parts = [{"cluster": "dgx_a100", "nodes": 2}, {"cluster": "dgx_h100", "nodes": 2}]
    mixed = {"name": "mixed", "parts": parts, "between_gb_per_s": 50, "between_latency_us": 20}
    assert pipesim.estimate(cluster=mixed, parallel={"t": 4, "p": 4}).gpus == 32


def test_a_plan_takes_mappings_as_an_estimate_does() -> None:
    few = {"name": "dgx_h100", "gpus": 16}
    (best,) = pipesim.plan(model=LLAMA, cluster=few, best=1, t=[8], p=[1, 2]).to_dict("records")
    named = pipesim.plan(model="llama2_13b", cluster="dgx_h100", overrides=["cluster.gpus=16"], best=1, t=[8], p=[1, 2])
    assert best["step_time_s"] == named["step_time_s"][0]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"model": {"layers": 48}},
            r"^model has no name to start from, .* lacks name, hidden, heads, vocab, context\.",
        ),
        (
            {"model": {"name": "llama13b"}},
            r"^model\.name=llama13b is no choice .* lacks layers, .* Nearest: llama2_13b",
        ),
        ({"model": OWN | {"hiden": 3}}, r"^model\.hiden is no key .* Nearest: hidden\."),
        ({"model": OWN | {"layers": "forty"}}, r"^model\.layers='forty' must be a whole number"),
        ({"model": LLAMA | {"defaults": ["toy"]}}, r"^model\.defaults is no key"),
        ({"model": {"name": ["toy", "llama2_7b"]}}, r"model\.name=.* must be one word"),
        ({"cluster": {"name": "mine", "gpus": 64}}, r"cluster\.name=mine is no choice .* lacks chip, gpus_per_node"),
        ({"stack": {"slack": 0.1}}, r"stack has no name .* lacks name, gemm_efficiency\. Choices are: aleph_alpha, "),
        ({"costs": {"flops": "causal"}}, r"costs has no kind .* Choices are: full, lecture\."),
        ({"config_dir": "/no/such"}, r"^config_dir='/no/such' is no folder\."),
    ],
)
def test_a_mapping_that_is_no_shape_is_refused_with_what_it_lacks(asked: dict[str, Any], words: str) -> None:
    for ask in (pipesim.estimate, pipesim.sweep, pipesim.plan):
        with pytest.raises(ValueError, match=words) as error:
            ask(**asked)
        assert "\n" not in str(error.value)
        assert "_given_" not in str(error.value)


def test_sequences_longer_than_the_context_are_warned_of_and_learned_positions_refuse_them() -> None:
    asked: dict[str, Any] = {"cluster": "dgx_h100", "parallel": {"t": 8, "p": 1, "c": 2, "d": 2}, "stack": "ideal"}
    longer = {"seq_length": 16384, "global_batch": 16}
    words = "training.seq_length=16384 exceeds model.context=8192, which frameworks may refuse. Nearest: model.context=16384."
    assert pipesim.estimate(model="llama3_8b", training=longer, **asked).warning == words
    assert pipesim.estimate(model="llama3_8b", training=longer | {"seq_length": 8192}, **asked).warning is None
    each = pipesim.sweep(model="llama3_8b", training=longer | {"seq_length": [8192, 16384]}, **asked)
    assert each.set_index("seq_length")["warning"].dropna().to_dict() == {16384: words}
    with pytest.raises(
        ValueError, match=r"learned positions, .*Nearest: model\.context=4096, or training\.seq_length=2048"
    ):
        pipesim.estimate(model="gpt_22b", training={"seq_length": 4096})
