"""The table of what a step sends: it is what the step is priced by, line by line, and adds up to the row's bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import MIXTRAL, SMALL, row

LAW = settings(deadline=None, max_examples=25)

SENT_OF_A_MESSAGE = {
    "all-reduce": 2,
    "reduce-scatter": 1,
    "all-gather": 1,
    "all-to-all": 1,
    "ring pass": 1,
    "broadcast": 1,
}


def lines(*overrides: str, **changes: Any) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(row(*overrides, **changes)["communication"])
    return found


def of(dimension: str, *overrides: str, **changes: Any) -> list[list[Any]]:
    return [line[1:] for line in lines(*overrides, **changes) if line[0] == dimension]


def check(each: dict[str, Any]) -> None:
    table = json.loads(each["communication"])
    for dimension in ("tp", "dp", "pp"):
        sent = sum(line[-1] for line in table if line[0] == dimension)
        assert sent == pytest.approx(each[f"{dimension}_bytes_per_gpu"], rel=1e-9, abs=1e-6)
    for _, kind, ranks, _, _, times, size, sent in table:
        once = size if kind == "send" else SENT_OF_A_MESSAGE[kind] * (ranks - 1) / ranks * size
        assert sent == pytest.approx(times * once, rel=1e-9)
        assert ranks > 1
        assert times > 0


@pytest.mark.slow
@LAW
@given(
    layout=st.fixed_dictionaries(
        {
            "t": st.sampled_from([1, 2, 4]), "p": st.sampled_from([1, 2, 4]), "d": st.sampled_from([4, 8]),
            "c": st.sampled_from([1, 2]), "e": st.sampled_from([1, 2, 4]), "zero": st.integers(0, 3),
            "context": st.sampled_from(["ring", "all_gather", "ulysses"]), "sequence_parallel": st.booleans(),
            "recompute": st.sampled_from(["none", "selective", "full"]), "shard": st.sampled_from([None, 4]),
            "rank_order": st.sampled_from(["tcdp", "tcpd", "ptcd"]),
            "schedule": st.sampled_from(["1f1b", "gpipe", "interleaved_1f1b", "zbv", "dualpipe"]),
        }
    )
)  # fmt: skip
def test_messages_times_bytes_are_the_row_s_bytes(layout: dict[str, Any]) -> None:
    layout |= {"v": None, "micro_batch": 1, "global_batch": 64, "gpus": 512}
    if layout["zero"] == 0:
        layout["shard"] = None
    if layout["schedule"] in ("interleaved_1f1b", "zbv", "dualpipe") and layout["p"] == 1:
        layout["schedule"] = "1f1b"
    check(row(*MIXTRAL, **layout))


@pytest.mark.parametrize(
    "schedule", ["seq1f1b", "interleaved_1f1b", "zbv", "hanayo", "dualpipe", "dualpipev", "chimera"]
)
def test_every_schedule_lists_the_sends_that_it_makes(schedule: str) -> None:
    check(row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=16, schedule=schedule, v=None))


def test_tensor_ranks_all_reduce_or_scatter_and_gather() -> None:
    # 32 layers, 8 micro-batches, 4 a layer (6 with recomputation); 4096 tokens of 4096 elements of 2 bytes
    shape: dict[str, Any] = {"t": 4, "p": 1, "d": 1, "micro_batch": 1, "global_batch": 8}
    size = 4096 * 4096 * 2
    for recompute, each in (("none", 4), ("full", 6)):
        times = each * 32 * 8
        plain = of("tp", *SMALL, **shape, recompute=recompute, sequence_parallel=False)
        assert plain == [["all-reduce", 4, False, 1, times, size, times * 1.5 * size]]
        sequence = of("tp", *SMALL, **shape, recompute=recompute, sequence_parallel=True)
        assert sequence == [
            [kind, 4, False, 1, times, size, times * 0.75 * size] for kind in ("all-gather", "reduce-scatter")
        ]


def test_recomputing_some_layers_repeats_their_all_reduces_alone() -> None:
    # 4 + 2 x 8 / 32 all-reduces a layer
    (line,) = of("tp", *SMALL, t=4, p=1, d=1, micro_batch=1, global_batch=8, recompute="full", recompute_layers=8)
    assert line[4] == (4 * 32 + 2 * 8) * 8


def test_context_ranks_pass_keys_and_values_or_exchange_heads() -> None:
    # 2048 tokens each: keys and values of 4096 elements, one pass forward and two backward; or of queries, keys, values
    # and outputs, two of 4096 elements and two of 4096 (as many key heads as query heads), each way
    shape: dict[str, Any] = {"t": 1, "c": 2, "p": 1, "d": 1, "micro_batch": 1, "global_batch": 2}
    shape["recompute"] = "none"
    own = 2048 * 2 * 4096 * 2
    assert of("cp", *SMALL, **shape) == [["ring pass", 2, False, 1, 3 * 32 * 2, 2 * own, 3 * 32 * 2 * own]]
    assert of("cp", *SMALL, **shape, context="ulysses") == [
        ["all-to-all", 2, False, 1, 8 * 32 * 2, own / 2, 8 * 32 * 2 * own / 4]
    ]
    # Grattafiori et al. 2024, section 3.3.2: gathered forward and again backward, gradients reduced
    assert of("cp", *SMALL, **shape, context="all_gather") == [
        ["all-gather", 2, False, 1, 2 * 32 * 2, 2 * own, 2 * 32 * 2 * own],
        ["reduce-scatter", 2, False, 1, 32 * 2, 2 * own, 32 * 2 * own],
    ]
    # attention that runs again brings its keys and values again
    (again,) = of("cp", *SMALL, **shape | {"recompute": "selective"})
    assert again[4] == 4 * 32 * 2


def test_expert_ranks_send_tokens_there_and_back() -> None:
    # 32 layers, two all-to-alls each way, top 2 of 4096-element tokens; e = 8 at t = 4 takes four nodes of eight
    (line,) = of("ep", *MIXTRAL, t=4, e=8, p=1, d=8, micro_batch=1, global_batch=16, sequence_parallel=False)
    size, times = 2 * 4096 * 4096 * 2, 4 * 32 * 2
    assert line == ["all-to-all", 8, True, 4, times, size, times * 7 / 8 * size]


@pytest.mark.parametrize("v", [1, 2])
def test_virtual_stages_hand_on_v_times_as_often(v: int) -> None:
    # of 4 ranks, an inner one sends every result and every gradient of each of its stages
    (line,) = of("pp", *SMALL, t=8, p=4, d=1, micro_batch=1, global_batch=8, v=v, sequence_parallel=False,
                 schedule="1f1b" if v == 1 else "interleaved_1f1b")  # fmt: skip
    assert line == ["send", 2, True, 8, 2 * v * 8, 4096 * 4096 * 2, 2 * v * 8 * 4096 * 4096 * 2]


PARAMS = 6_738_415_616


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (0, [("all-reduce", 1, 4, 2)]),
        (1, [("reduce-scatter", 1, 4, 1), ("all-gather", 1, 2, 1)]),
        (2, [("reduce-scatter", 4, 4, 1), ("all-gather", 1, 2, 1)]),
        (3, [("reduce-scatter", 4, 4, 1), ("all-gather", 8, 2, 1)]),
    ],
)
def test_data_ranks_exchange_what_their_zero_stage_says(zero: int, expected: list[tuple[str, int, int, int]]) -> None:
    # 4 micro-batches: ZeRO-2 reduces the gradients of each, ZeRO-3 gathers weights for each too, forward and backward
    found = of("dp", *SMALL, t=1, p=1, d=16, zero=zero, micro_batch=1, global_batch=64)
    assert [(*line[:5], pytest.approx(line[5]), pytest.approx(line[6])) for line in found] == [
        (kind, 16, True, 1, times, PARAMS * size, times * twice * 15 / 16 * PARAMS * size)
        for kind, times, size, twice in expected
    ]


@pytest.mark.parametrize("m", [1, 4])
def test_zero_3_in_a_pipeline_exchanges_once_a_step(m: int) -> None:
    # stages stay whole until the step ends: one gather, and one reduction after the last micro-batch
    found = of("dp", *SMALL, t=1, p=2, d=8, zero=3, micro_batch=1, global_batch=8 * m)
    assert [line[:5] for line in found] == [["reduce-scatter", 8, False, 1, 1], ["all-gather", 8, False, 1, 1]]


def test_zero_3_gathers_layers_in_fp8_and_tables_in_16_bits() -> None:
    found = of("dp", *SMALL, "cluster=dgx_h100", t=1, p=1, d=16, zero=3, micro_batch=1, global_batch=16,
               precision="fp8", fp8_gathers=True)  # fmt: skip
    tables = 2 * 32000 * 4096
    assert [line[5] for line in found] == [pytest.approx(4 * PARAMS), pytest.approx(PARAMS + tables)]


def test_hsdp_shards_inside_a_node_and_reduces_between_nodes() -> None:
    # 4 nodes of 8 shards: within NVLink for each of 2 micro-batches; each rank's eighth once over the network, 8 at once
    found = of("dp", *SMALL, t=1, p=1, d=32, zero=3, shard=8, micro_batch=1, global_batch=64)
    assert [line[:5] for line in found] == [
        ["reduce-scatter", 8, False, 1, 2], ["all-gather", 8, False, 1, 4], ["all-reduce", 4, True, 8, 1]
    ]  # fmt: skip
    assert found[2][5:] == [pytest.approx(PARAMS * 4 / 8), pytest.approx(2 * 3 / 4 * PARAMS * 4 / 8)]


def test_experts_are_reduced_among_those_that_hold_the_same() -> None:
    found = of("dp", *MIXTRAL, t=1, p=1, d=16, e=8, zero=1, micro_batch=1, global_batch=16)
    assert [(line[0], line[1], line[3]) for line in found] == [
        ("reduce-scatter", 16, 1), ("all-gather", 16, 1), ("reduce-scatter", 2, 8), ("all-gather", 2, 8)
    ]  # fmt: skip
    assert found[2][5] == pytest.approx(32 * 3 * 4096 * 14336 * 4)  # one expert a layer


def test_tied_ends_of_a_pipeline_reduce_their_table() -> None:
    # BLOOM: 250,880 rows of 14,336 over t = 4, gradients of 4 bytes, ranks 0 and 11
    assert of("tied") == [["all-reduce", 2, True, 8, 1, 250880 * 14336 / 4 * 4, 250880 * 14336 / 4 * 4]]
    assert of("tied", *SMALL) == []


def test_the_rank_order_decides_the_link() -> None:
    # d innermost keeps data groups inside a node and sends tensor groups over the network
    shape: dict[str, Any] = {"t": 4, "p": 1, "d": 8, "micro_batch": 1, "global_batch": 8}
    places = {
        order: {line[0]: line[3] for line in lines(*SMALL, **shape, rank_order=order)} for order in ("tcdp", "dctp")
    }
    assert places == {"tcdp": {"tp": False, "dp": True}, "dctp": {"tp": True, "dp": False}}
    near, far = (row(*SMALL, **shape, rank_order=order) for order in ("tcdp", "dctp"))
    assert near["tp_s"] < far["tp_s"]
    assert near["dp_exposed_s"] > far["dp_exposed_s"]


def test_the_lecture_lists_its_all_reduce_and_its_sends() -> None:
    check(row("costs=lecture"))
    assert [line[:2] for line in lines("costs=lecture")] == [["dp", "all-reduce"], ["pp", "send"]]
