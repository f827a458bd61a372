"""Laws of a whole rank's memory, and right values of what fp8 and spread vocabularies hold beside the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import MIXTRAL, SMALL, composed, point, row, rows

from pipesim.report.layout import tables as layout_tables
from pipesim.report.say import english
from pipesim.schedules import make_schedule

LAW = settings(deadline=None, max_examples=15)
LAYOUTS = st.fixed_dictionaries(
    {
        "p": st.sampled_from([1, 2, 4]), "d": st.sampled_from([1, 4]), "zero": st.integers(0, 3),
        "schedule": st.sampled_from(["1f1b", "gpipe", "zb_h1"]), "recompute": st.sampled_from(["none", "selective", "full"]),
        "attention": st.sampled_from(["unfused", "flash"]), "precision": st.sampled_from(["bf16", "fp8"]),
        "micro_batch": st.sampled_from([1, 2]),
    }
)  # fmt: skip
H100 = "model=llama2_7b", "cluster=dgx_h100", "training=megatron", "stack=megatron_lm"


def held(model: tuple[str, ...], changes: list[dict[str, Any]], **layout: Any) -> list[float]:
    """Bytes of the heaviest rank under each of the changes."""
    shape = {"global_batch": 64, "sequence_parallel": False} | layout
    return [each["memory_bytes"] for each in rows(*(point(*model, **shape | change) for change in changes))]


@pytest.mark.parametrize("model", [H100, MIXTRAL], ids=["dense", "mixture"])
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, sequence_parallel=st.booleans())
def test_more_tensor_ranks_never_hold_more(
    model: tuple[str, ...], layout: dict[str, Any], sequence_parallel: bool
) -> None:
    one, two, four = held(
        model, [{"t": t, "e": 1, "sequence_parallel": sequence_parallel and t > 1} for t in (1, 2, 4)], **layout
    )
    assert one > two > four


@pytest.mark.parametrize("model", [H100, MIXTRAL], ids=["dense", "mixture"])
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_sequence_parallelism_never_holds_more(model: tuple[str, ...], layout: dict[str, Any]) -> None:
    repeated, shared = held(model, [{"t": 4, "e": 1, "sequence_parallel": each} for each in (False, True)], **layout)
    assert shared < repeated


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_a_larger_micro_batch_holds_more(layout: dict[str, Any]) -> None:
    one, two = held(H100, [{"t": 2, "micro_batch": b} for b in (1, 2)], **layout | {"global_batch": 32})
    assert one < two


@pytest.mark.parametrize("t", [1, 2])
def test_fp8_holds_matrices_and_their_transposes_beside_the_wide_ones(t: int) -> None:
    # Llama 2 7B: 4 h h and 3 h f weights in each of 32 layers, a byte each, twice; tables and norms stay as they are
    wide, narrow = (row(*H100, t=t, p=1, d=1, precision=each, global_batch=8) for each in ("bf16", "fp8"))
    assert wide["buffers_bytes"] == 0
    assert narrow["buffers_bytes"] == 2 * 32 * (4 * 4096**2 + 3 * 4096 * 11008) / t
    assert narrow["model_state_bytes"] == wide["model_state_bytes"]
    assert narrow["activation_bytes"] < wide["activation_bytes"]


@pytest.mark.parametrize(("spread", "waiting"), [("algorithm_1", 2), ("algorithm_2", 1), ("interlaced", 0)])
def test_a_spread_vocabulary_keeps_the_softmax_of_micro_batches_between_its_passes(spread: str, waiting: int) -> None:
    # Yeung et al. 2024: p = 4 shares; 10 bytes a logit at work and 4 a waiting one; outputs of 4096 tokens and three sums
    # of all ranks; two gradients
    each = row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=16, spread_vocab=spread, logits_held_bytes=8)
    logits, output, table = 4096 * 32000 / 4, 2 * 4096 * 4096, 32000 * 4096 / 4
    assert each["logits_bytes"] == (10 + 4 * waiting) * logits + (4 + waiting) * output + 2 * 2 * table


@pytest.mark.parametrize("m", [1, 2, 16])
@pytest.mark.parametrize("t", [1, 2])
def test_zero_3_in_a_pipeline_holds_a_stage_s_weights_and_sums_of_gradients_undivided(m: int, t: int) -> None:
    # torch's pipelining neither reshards nor exchanges gradients before the last of m micro-batches: 2 bytes a parameter,
    # and 4 for each gradient whose sum is another of the 8 ranks'
    each = row(*SMALL, t=t, p=4, d=8, zero=3, micro_batch=1, global_batch=8 * m, gradient_bytes=4)
    gradients = 4 * 7 / 8 * (m > 1)
    assert each["buffers_bytes"] == pytest.approx((2 + gradients) * each["params_per_gpu"], rel=1e-12)
    alone = row(*SMALL, t=t, p=1, d=8, zero=3, micro_batch=1, global_batch=8 * m)
    assert alone["buffers_bytes"] < 6 * alone["params_per_gpu"] / 30


def test_fsdp_keeps_both_ends_of_the_model_gathered_in_two_copies() -> None:
    shape: dict[str, Any] = {"t": 1, "d": 8, "zero": 3, "micro_batch": 1, "global_batch": 8}
    plain, fsdp = (row(*SMALL, **shape, p=1, fsdp=each)["buffers_bytes"] for each in (False, True))
    assert fsdp - plain == pytest.approx(2 * 2 * 2 * 32000 * 4096, rel=1e-12)


def test_zero_3_on_one_rank_of_a_pipeline_gathers_nothing() -> None:
    assert row(*SMALL, t=1, p=4, d=1, zero=3, micro_batch=1, global_batch=8)["buffers_bytes"] == 0


def test_gathered_inputs_are_kept_whole_only_without_a_pipeline() -> None:
    shape = {"d": 1, "micro_batch": 1, "global_batch": 16, "sequence_parallel": True, "recompute": "none"}
    held = {
        (t, p, kept): row(*SMALL, **shape | {"sequence_parallel": t > 1}, t=t, p=p, gathered_kept_bytes=kept)["activation_bytes"]
        for t in (1, 4) for p in (1, 2) for kept in (0, 2)
    }  # fmt: skip
    scale = composed(*SMALL).stack.activation_scale
    assert held[4, 1, 2] - held[4, 1, 0] == pytest.approx(32 * 2 * 4096 * 4096 * scale, rel=1e-9)
    assert all(held[each, p, 2] == held[each, p, 0] for each, p in ((1, 1), (1, 2), (4, 2)))


def test_a_layout_s_report_names_the_first_the_middle_the_last_and_the_heaviest_rank() -> None:
    each = row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=8) | {"p": 4}
    ranks = layout_tables.ranks(each, make_schedule("1f1b", p=4, m=8), english)
    places = [column.title for column in ranks.columns].index("place")
    assert [line[places] for line in ranks.rows] == ["first, heaviest", "", "middle", "last"]
    memory = [column.title for column in ranks.columns].index("memory")
    assert [line[memory] for line in ranks.rows] == each["rank_memory_bytes"]


def test_a_rank_of_a_v_shows_the_stages_of_both_its_arms() -> None:
    each = row(*SMALL, t=1, p=4, v=2, d=1, micro_batch=1, global_batch=8, schedule="zbv")
    each |= {"p": 4, "stage_units": list(range(8)), "stage_forward_s": [2.0**k for k in range(8)]}
    lines = layout_tables.ranks(each, make_schedule("zbv", p=4, m=8), english).rows
    assert [line[2] for line in lines] == ["0 + 7", "1 + 6", "2 + 5", "3 + 4"]
    assert [line[6] for line in lines] == [129, 66, 36, 24]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved_1f1b"])
def test_what_stages_hold_in_flight_is_what_more_of_it_adds_to_a_rank(schedule: str) -> None:
    v = 2 if schedule == "interleaved_1f1b" else 1
    few, many = rows(*(point(*H100, p=4, t=1, v=v, schedule=schedule, global_batch=b, d=1) for b in (4, 32)))
    for one in (few, many):
        assert len(one["stage_activation_bytes"]) == 4 * v
    flying = [after - before for before, after in zip(few["peak_inflight"], many["peak_inflight"], strict=True)]
    for rank, more in enumerate(flying):
        grown = many["rank_memory_bytes"][rank] - few["rank_memory_bytes"][rank]
        each = [many["stage_activation_bytes"][stage] for stage in range(rank, 4 * v, 4)]
        assert more * min(each) * (v == 1) - 1 <= grown <= more * max(each) + 1
