"""Laws of a whole rank's memory, and right values of what fp8 and spread vocabularies hold beside the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import MIXTRAL, SMALL, point, row, rows

from pipesim.report import layout_tables
from pipesim.report.say import english

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
@LAW
@given(layout=LAYOUTS)
def test_sequence_parallelism_never_holds_more(model: tuple[str, ...], layout: dict[str, Any]) -> None:
    repeated, shared = held(model, [{"t": 4, "e": 1, "sequence_parallel": each} for each in (False, True)], **layout)
    assert shared < repeated


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
    # Yeung et al. 2024: p = 4 shares; 8 bytes a logit at work and 4 a waiting one; outputs of 4096 tokens; two gradients
    each = row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=16, spread_vocab=spread, logits_held_bytes=8)
    logits, output, table = 4096 * 32000 / 4, 2 * 4096 * 4096, 32000 * 4096 / 4
    assert each["logits_bytes"] == (8 + 4 * waiting) * logits + (1 + waiting) * output + 2 * 2 * table


def test_a_layout_s_report_names_the_first_the_middle_the_last_and_the_heaviest_rank() -> None:
    each = row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=8) | {"p": 4}
    ranks = layout_tables.ranks(each, english)
    places = [column.title for column in ranks.columns].index("place")
    assert [line[places] for line in ranks.rows] == ["first, heaviest", "", "middle", "last"]
    memory = [column.title for column in ranks.columns].index("memory")
    assert [line[memory] for line in ranks.rows] == each["rank_memory_bytes"]
