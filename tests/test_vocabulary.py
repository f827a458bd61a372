"""A vocabulary spread over a pipeline: what its passes exchange and move, counted by hand, and laws of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import SMALL, point, row, rows, with_cluster

from pipesim.estimate import TIME_ITEMS
from pipesim.specs import LinkSpec

LAW = settings(deadline=None, max_examples=25)
SPREAD = st.sampled_from(["algorithm_1", "algorithm_2", "interlaced"])
SHAPE: dict[str, Any] = {"t": 1, "p": 4, "d": 1, "micro_batch": 1, "global_batch": 16, "sequence_parallel": False}
TOKENS, HIDDEN, VOCAB = 4096, 4096, 32000
OUTPUT = TOKENS * HIDDEN


def lines(spread: str, **changes: Any) -> list[list[Any]]:
    table = json.loads(row(*SMALL, **SHAPE | {"spread_vocab": spread} | changes)["communication"])
    return [[line[1], line[2], line[5], line[6]] for line in table if line[0] == "vocab"]


def test_an_interlaced_pipeline_sends_its_last_output_and_adds_up_embeddings_statistics_and_gradients() -> None:
    # Each of 16 micro-batches: output and embeddings' gradient to all; embeddings, output's gradient; 3 numbers a token
    assert lines("interlaced") == [
        ["broadcast", 4, 2 * 16, 2 * OUTPUT], ["all-reduce", 4, 3 * 16, 4 * TOKENS], ["all-reduce", 4, 2 * 16, 2 * OUTPUT],
    ]  # fmt: skip


@pytest.mark.parametrize("spread", ["algorithm_1", "algorithm_2"])
def test_passes_on_a_stream_of_their_own_send_outputs_in_fp32_and_keep_messages_in_order(spread: str) -> None:
    assert sorted(lines(spread)) == sorted([
        ["broadcast", 4, 16, 4 * OUTPUT], ["broadcast", 4, 16, 2 * OUTPUT], ["all-reduce", 4, 3 * 16, 4 * TOKENS],
        ["all-reduce", 4, 2 * 16, 2 * OUTPUT], ["all-reduce", 4, 2 * 16, 4],
    ])  # fmt: skip


@pytest.mark.parametrize("spread", ["interlaced", "algorithm_2"])
def test_stages_of_one_rank_share_one_exchange_and_tensor_ranks_share_its_bytes(spread: str) -> None:
    assert lines(spread, schedule="interleaved_1f1b", v=2) == lines(spread)
    whole, shared = lines(spread), lines(spread, t=2, sequence_parallel=True)
    assert [each[3] for each in shared if each[3] > 4] == [each[3] / 2 for each in whole if each[3] > 4]


@pytest.mark.parametrize(("spread", "logit_bytes", "output_bytes"), [("algorithm_1", 8, 14), ("algorithm_2", 14, 32)])
def test_scaling_a_local_softmax_moves_every_logit_again(spread: str, logit_bytes: int, output_bytes: int) -> None:
    found, waits = (row(*SMALL, **SHAPE, spread_vocab=each) for each in (spread, "interlaced"))
    more_s = 16 * (TOKENS * VOCAB / 4 * logit_bytes + OUTPUT * output_bytes) / (2039e9 * 0.84)
    assert found["elementwise_s"] - waits["elementwise_s"] == pytest.approx(more_s, rel=1e-6)


def test_every_rank_makes_embeddings_for_all_tokens() -> None:
    # 8 bytes for each element, forward and backward together, on four ranks instead of one
    ends, spread = (row(*SMALL, **SHAPE, spread_vocab=each)["elementwise_s"] for each in ("none", "interlaced"))
    assert spread - ends == pytest.approx(16 * OUTPUT * 8 * 3 / 4 / (2039e9 * 0.84), rel=1e-6)


def test_only_what_waits_is_paid_whole() -> None:
    shown, half, whole = (
        row(*SMALL, **SHAPE, spread_vocab="algorithm_2", dp_overlap=each)["vocab_s"] for each in (0, 0.5, 1)
    )
    assert half == pytest.approx(shown / 2)
    assert whole == pytest.approx(0, abs=1e-12)
    waits = [row(*SMALL, **SHAPE, spread_vocab="interlaced", dp_overlap=each)["vocab_s"] for each in (0, 1)]
    assert waits[0] == waits[1] > 0


@pytest.mark.slow
@LAW
@given(spread=SPREAD, p=st.sampled_from([1, 2, 8]), t=st.sampled_from([1, 4]), times=st.floats(1, 8))
def test_items_add_up_and_faster_links_are_never_slower(spread: str, p: int, t: int, times: float) -> None:
    asked = point(*SMALL, **SHAPE | {"spread_vocab": spread, "p": p, "t": t})
    links = {
        name: LinkSpec(bandwidth_bytes_per_s=times * link.bandwidth_bytes_per_s, latency_s=link.latency_s)
        for name, link in (("intra_node", asked.cluster.intra_node), ("inter_node", asked.cluster.inter_node))
    }
    slow, fast = rows(asked, with_cluster(asked, **links))
    for each in (slow, fast):
        assert sum(each[f"{item}_s"] for item in TIME_ITEMS) == each["step_time_s"]
        assert (each["vocab_s"] > 0) == (p > 1)
    assert fast["step_time_s"] <= slow["step_time_s"] * (1 + 1e-12)
