"""Layout strings and split flags of Megatron-LM: every layer is on one stage, and what is wrong is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import composed

from pipesim import legality
from pipesim.checks import Invalid
from pipesim.costs.stage import balanced_partition
from pipesim.legality import megatron_layout, megatron_split


def problem(ask: Callable[[], object]) -> str:
    with pytest.raises(Invalid) as raised:
        ask()
    return " ".join(raised.value.problems)


def test_the_example_of_megatrons_own_documentation_has_its_32_stages() -> None:
    # Megatron-LM core_v0.13, parse_str_to_list: DeepSeek-V3 on 16 ranks with 2 stages each
    found = megatron_layout.stages("Et*3|(tt|)*29,m|L")
    assert found == ["Ettt", *["tt"] * 29, "m", "L"]
    assert sum(stage.count("t") for stage in found) == 61


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ett|tt|ttL", (3, 2, 3)),
        (" E t t | t,t | t t L ", (3, 2, 3)),
        ("E|(t|t|)*2L", (1, 1, 1, 1, 1, 1)),
        ("E(|tt)*2|L", (1, 2, 2, 1)),
        ("Et*6|(t*6|)*10t*4L", (7, *[6] * 10, 5)),
        ("Et||tL", (2, 0, 2)),
        ("E(t|)*01tL", (2, 2)),
    ],
)
def test_layouts_are_read(text: str, expected: tuple[int, ...]) -> None:
    assert megatron_layout.partition(text, layers=sum(expected) - 2) == expected


@pytest.mark.slow
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40).filter(lambda parts: sum(parts) >= 3))
def test_what_is_written_is_read_as_it_was(parts: list[int]) -> None:
    assert megatron_layout.partition(megatron_layout.written(parts), layers=sum(parts) - 2) == tuple(parts)


def test_a_written_layout_is_short() -> None:
    assert megatron_layout.written([4, *[4] * 30, 4]) == "Ettt|(t*4|)*30tttL"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tt|ttL", "E, the embedding, is missing. Nearest: put it first"),
        ("Ett|tt", "L, the head, is missing. Nearest: put it last"),
        ("Ett|Ett|L", "E, the embedding, is there 2 times. Nearest: once, first"),
        ("EttL|ttL", "L, the head, is there 2 times. Nearest: once, last"),
        ("tE|tL", "E, the embedding, must be first"),
        ("Et|Lt", "L, the head, must be last"),
        ("E|L", "t, a layer, is missing"),
        ("Et|mt|L", "m, multi-token prediction, must come after every t"),
        ("Et|tx|L", "has x where only E, t, m, L"),
        ("E((t|)*2|)*2L", "without parentheses in others"),
        ("E(t|tL", "has ( where only"),
        ("Et*999999999|L", "writes out to more than 300,000 letters"),
        ("E" + "(t|)*999" * 400 + "L", "writes out to more than 300,000 letters"),
        ("Et*" + "9" * 5000 + "L", "writes out to more than 300,000 letters"),
    ],
)
def test_what_is_wrong_with_a_layout_is_named_with_its_key(text: str, named: str) -> None:
    told = problem(lambda: megatron_layout.stages(text))
    assert told.startswith("parallel.partition='")
    assert named in told


def test_multi_token_prediction_is_no_unit() -> None:
    assert "Nearest: Et|tL." in problem(lambda: megatron_layout.partition("Et|tmL", layers=2))


def test_a_config_takes_a_layout_for_its_partition() -> None:
    point = composed('parallel.partition="Et*5|(t*6|)*10t*5L"')
    assert legality.resolve(point) == legality.resolve(composed("parallel.partition=" + str([6] * 12).replace(" ", "")))


def test_a_misspelt_partition_learns_what_there_is() -> None:
    told = problem(lambda: composed("parallel.partition=balancd"))
    assert "a layout such as Ett|tt|ttL" in told
    assert "Nearest: balanced." in told


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('"Et*5|(t*6|)*10t*4L"', "holds 69 layers, t, 1 fewer than model.layers=70. Nearest: Et*5|(t*6|)*10t*5L."),
        ('"Et*5|(t*6|)*10t*7L"', "holds 72 layers, t, 2 more than model.layers=70. Nearest: Et*5|(t*6|)*10t*5L."),
        ('"Et*5|(t*6|)*9t*11L"', "has 11 entries, but parallel.p=12 x parallel.v=1 makes 12 stages. Nearest: [6, 6, "),
    ],
)
def test_a_layout_must_hold_every_layer_on_as_many_stages_as_there_are(text: str, named: str) -> None:
    told = problem(lambda: legality.resolve(composed(f"parallel.partition={text}")))
    assert named in told


def test_sixteen_lost_layers_are_named() -> None:
    # case C08: 80 layers on p = 16 with two stages of 2 layers on each rank train 64 (Megatron-LM issue 468)
    two_each = [3, *[2] * 30, 3]
    point = composed(
        "model.layers=80", "parallel.p=16", "parallel.d=1", "parallel.t=4", "schedule=interleaved_1f1b",
        "parallel.v=2", "parallel.partition=" + str(two_each).replace(" ", ""), "training.global_batch=2048",
    )  # fmt: skip
    assert "layers 65 to 79 and the head would be on no stage" in problem(lambda: legality.resolve(point))
    told = problem(lambda: megatron_split.stages_per_rank(80, 16, 2))
    assert "leave 16 layers on no stage" in told
    assert "Nearest: --num-layers-per-virtual-pipeline-stage=1 or 5." in told


@pytest.mark.parametrize(("layers", "p", "lost"), [(30, 4, "2 layers"), (40, 16, "8 layers"), (62, 4, "2 layers")])
def test_megatrons_even_split_refuses_what_does_not_divide(layers: int, p: int, lost: str) -> None:
    # cases C09 and C12: floor divisions built 28, 32 and 60 layers
    told = problem(lambda: megatron_split.even(layers, p))
    assert f"leave {lost} on no stage" in told
    assert "parallel.partition=balanced places every layer" in told


def test_one_rank_with_one_last_layer_is_refused() -> None:
    # case C11: p = 1 and --decoder-last-pipeline-num-layers=1 trained 1 of 20 layers (Megatron-LM issue 1778)
    told = problem(lambda: megatron_split.first_last(20, 1, None, 1))
    assert "--decoder-last-pipeline-num-layers=1 on --pipeline-model-parallel-size=1" in told
    assert "19 layers left, which would lie on no stage" in told


COUNTS = st.none() | st.integers(0, 12)


@given(layers=st.integers(1, 130), p=st.integers(1, 16), v=st.integers(1, 4), first=COUNTS, last=COUNTS)
def test_no_layer_is_lost_or_doubled_by_flags(layers: int, p: int, v: int, first: int | None, last: int | None) -> None:
    try:
        units = megatron_split.first_last(layers, p, first, last, v)
    except Invalid:
        return
    assert sum(units) == layers + 2
    assert len(units) == p * v
    if first is not None:
        assert sum(units[::p]) == first + 1 + (p == 1)
    if last is not None:
        assert sum(units[p - 1 :: p]) == last + 1 + (p == 1)


@given(layers=st.integers(1, 130), p=st.integers(1, 16), v=st.integers(1, 4), ends=st.tuples(*[st.booleans()] * 2))
def test_ends_that_count_as_layers_hold_one_fewer(layers: int, p: int, v: int, ends: tuple[bool, bool]) -> None:
    try:
        units = megatron_split.even(layers, p, v, *ends)
    except Invalid:
        assert (layers + sum(ends)) % (p * v)
        return
    assert sum(units) == layers + 2
    assert set(units[1:-1]) <= {(layers + sum(ends)) // (p * v)}


def test_the_nearest_number_of_first_layers_works() -> None:
    for layers, p in itertools.product(range(8, 40), range(2, 8)):
        try:
            megatron_split.first_last(layers, p, None, None)
        except Invalid as error:
            first = int(str(error).split("--decoder-first-pipeline-num-layers=")[1].rstrip("."))
            assert sum(megatron_split.first_last(layers, p, first, None)) == layers + 2


@pytest.mark.parametrize(
    ("layers", "ranks", "expected"),
    [(10, 3, [4, 3, 3]), (7, 2, [4, 3]), (62, 4, [16, 16, 15, 15]), (30, 4, [8, 8, 7, 7])],
)
def test_balanced_splits_hold_every_layer_once(layers: int, ranks: int, expected: list[int]) -> None:
    # cases C09 and C12; of units without ends, which an embedding and a head would count as
    assert sorted(balanced_partition(layers, ranks), reverse=True) == expected
