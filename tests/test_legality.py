"""Rules of layouts: every broken one is named with key, value and a nearest value that works; nothing else is refused."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from legal_points import BLOOM, MODELS, point

from pipesim import schedules
from pipesim.checks import Invalid, divisors, nearest_divisors
from pipesim.estimate import evaluate
from pipesim.legality import micro_batches, resolve
from pipesim.specs import Point

LAW = settings(deadline=None, max_examples=30)


def problems(asked: Point) -> list[str]:
    try:
        resolve(asked)
    except Invalid as error:
        return error.problems
    return []


def suggestions(problem: str, asked: Point) -> list[Point]:
    """The point with each of the values that the message names as nearest; ``A x B`` names two to take together."""
    text = problem.split("Nearest: ")[1].rstrip(".")
    key = problem.split("=", 1)[0]
    if text.startswith("["):
        return [changed(asked, key, tuple(int(units) for units in text.strip("[]").split(",")))]
    points = []
    for alternative in re.split(r",? or ", text):
        suggested = asked
        for part in alternative.split(" x "):
            *named, value = part.split("=")
            key = named[0] if named else key
            suggested = changed(suggested, key, int(value) if value.isdigit() else None if value == "null" else value)
        points.append(suggested)
    return points


def changed(asked: Point, key: str, value: Any) -> Point:
    group, _, name = key.rpartition(".")
    if group == "training":
        return dataclasses.replace(asked, training=dataclasses.replace(asked.training, **{name: value}))
    if group == "model":
        return dataclasses.replace(asked, model=dataclasses.replace(asked.model, **{name: value}))
    if key == "schedule.name":
        return dataclasses.replace(asked, schedule=value)
    return dataclasses.replace(asked, layout=dataclasses.replace(asked.layout, **{name: value}))


def rule(problem: str) -> str:
    """The message without its values: what stays the same while the same rule is broken."""
    return re.sub(r"\[[^]]*\]|\d+", "#", problem.split(" Nearest:")[0]).replace(" x parallel.c=#", "")


TOPICS: dict[str, st.SearchStrategy[Point]] = {
    "a derived d": st.builds(
        point, t=st.integers(1, 40), p=st.integers(1, 40), c=st.integers(1, 4), gpus=st.sampled_from([7, 64, 384])
    ),
    "an explicit d": st.builds(
        point, t=st.sampled_from([1, 2, 4, 7, 8]), p=st.integers(1, 72), d=st.integers(1, 600),
        gpus=st.sampled_from([7, 64, 384]),
    ),
    "tensor parallelism": st.builds(
        point, model=st.sampled_from([*MODELS]), t=st.integers(1, 128), p=st.just(1), d=st.just(1)
    ),
    "sequences": st.builds(
        point, t=st.sampled_from([1, 2, 4, 8]), c=st.integers(1, 6), p=st.just(1), d=st.just(1),
        seq_length=st.integers(1, 64), sequence_parallel=st.booleans(),
    ),
    "experts": st.builds(
        point, model=st.just("mixture"), t=st.just(1), p=st.just(1), d=st.integers(1, 12), c=st.sampled_from([1, 2]),
        e=st.integers(1, 20),
    ),
    "experts without a mixture": st.builds(point, e=st.integers(2, 9)),
    "stages": st.builds(
        point, t=st.just(1), p=st.integers(1, 90), d=st.just(1), partition=st.sampled_from(["balanced", "even"]),
        costs=st.sampled_from(["full", "lecture"]),
    ),
    "virtual stages": st.builds(
        point, t=st.just(1), p=st.integers(1, 12), d=st.just(1), v=st.integers(2, 100),
        partition=st.sampled_from(["balanced", "even"]),
    ),
    "units on stages": st.builds(
        point, t=st.just(1), p=st.integers(1, 4), d=st.just(1),
        partition=st.lists(st.integers(0, 40), min_size=1, max_size=5).map(tuple),
    ),
    "the batch": st.builds(
        point, t=st.just(1), p=st.just(1), d=st.integers(1, 64), micro_batch=st.integers(1, 9),
        global_batch=st.integers(1, 3000),
    ),
    "the recipe": st.builds(
        point, model=st.sampled_from([*MODELS]), t=st.just(4), p=st.just(1), d=st.just(1),
        precision=st.sampled_from(["bf16", "fp8"]), seq_length=st.integers(1, 200),
        attention=st.sampled_from(["torch", "unfused", "flash1", "flash", "flash3"]),
    ),
    "shards": st.builds(
        point, t=st.just(1), p=st.just(1), d=st.integers(1, 12), c=st.sampled_from([1, 2]), zero=st.integers(0, 3),
        shard=st.none() | st.integers(1, 30), costs=st.sampled_from(["full", "lecture"]),
        spread_vocab=st.sampled_from(["none", "algorithm_2"]),
    ),
    "heads of context ranks": st.builds(
        point, model=st.sampled_from([*MODELS]), t=st.sampled_from([1, 2, 4, 7]), p=st.just(1), d=st.just(1),
        c=st.integers(1, 32), context=st.sampled_from(["ring", "all_gather", "ulysses"]),
    ),
    "recomputed layers": st.builds(
        point, t=st.just(1), p=st.integers(1, 4), d=st.just(1),
        recompute=st.sampled_from(["none", "selective", "operators", "full"]),
        recompute_layers=st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=5).map(tuple),
    ),
}  # fmt: skip


@pytest.mark.parametrize("topic", TOPICS)
@LAW
@given(data=st.data())
def test_every_broken_rule_names_a_key_with_its_value_and_the_nearest_that_works(
    topic: str, data: st.DataObject
) -> None:
    asked = data.draw(TOPICS[topic])
    for problem in problems(asked):
        assert re.match(r"(parallel|training|schedule)\.\w+=\S", problem), problem
        assert "Nearest: " in problem, problem
        for suggested in suggestions(problem, asked):
            assert rule(problem) not in map(rule, problems(suggested)), problem


@pytest.mark.parametrize("topic", TOPICS)
@LAW
@given(data=st.data())
def test_exactly_what_breaks_a_rule_is_refused(topic: str, data: st.DataObject) -> None:
    asked = data.draw(TOPICS[topic])
    model, layout, training = asked.model, asked.layout, asked.training
    gpus, stages = asked.cluster.gpus, layout.p * layout.v
    whole_d = layout.t * layout.p * layout.c
    d = layout.d if layout.d is not None else gpus // whole_d
    length = training.seq_length or model.context
    units, again = layout.partition, training.recompute_layers
    keeps = (
        (d >= 1 and whole_d * d <= gpus)
        and (layout.d is not None or gpus % whole_d == 0)
        and all(size % layout.t == 0 for size in (model.heads, model.ffn, model.vocab))
        and length % (layout.c * (layout.t if layout.sequence_parallel else 1)) == 0
        and (layout.e == 1 or (model.moe is not None and model.moe.experts % layout.e == 0))
        and (d * layout.c) % layout.e == 0
        and stages <= model.units
        and (isinstance(units, str) or (len(units) == stages and sum(units) == model.units))
        and (model.units % stages == 0 if units == "even" or asked.costs.kind == "lecture" else True)
        and layout.v == 1  # every schedule here has one stage per rank
        and training.global_batch % (training.micro_batch * d) == 0
        and training.precision in asked.cluster.peak_flops_per_s
        and training.attention != "flash3"  # this cluster has no such kernel
        and (layout.shard is None or (layout.zero > 0 and (d * layout.c) % layout.shard == 0))
        and (layout.context != "ulysses" or model.heads % (layout.t * layout.c) == 0)
        and (again is None or training.recompute != "none")
        and (not isinstance(again, tuple) or len(again) == stages)
        and (asked.costs.kind == "full" or (layout.c == 1 and layout.shard is None and layout.spread_vocab == "none"))
        and not (model.positions == "learned" and length > model.context)
    )
    assert (problems(asked) == []) == keeps


@LAW
@given(t=st.sampled_from([1, 2, 4, 8]), p=st.sampled_from([1, 2, 6, 12, 24, 48]), c=st.sampled_from([1, 2]))
def test_d_takes_every_gpu_that_is_left(t: int, p: int, c: int) -> None:
    asked = point(t=t, p=p, c=c, global_batch=2048 * 3)
    assume(384 % (t * p * c) == 0)
    layout = resolve(asked).layout
    assert layout.d == 384 / (t * p * c)
    assert (layout.t, layout.p, layout.c) == (t, p, c)


def test_an_explicit_d_may_leave_gpus_unused() -> None:
    assert resolve(point(d=3, global_batch=6)).layout.d == 3


def test_a_resolved_point_spells_its_partition_out_and_resolves_to_itself() -> None:
    resolved = resolve(point())
    assert resolved.layout.partition == (6,) * 12
    assert resolve(resolved) == resolved
    assert micro_batches(resolved) == 2048 / (2 * 8)


def test_an_explicit_partition_is_taken_as_it_is() -> None:
    units = (5, *[6] * 10, 7)
    assert resolve(point(partition=units)).layout.partition == units


def test_too_large_a_d_is_told_the_largest() -> None:
    (problem,) = problems(point(d=9, global_batch=18))
    assert problem == (
        "parallel.t=4 x parallel.p=12 x parallel.d=9 = 432 needs more than cluster.gpus=384. Nearest: parallel.d=8."
    )


def test_a_cut_that_leaves_no_whole_d_is_told_the_nearest() -> None:
    (problem,) = problems(point(t=4, p=9))
    assert problem.startswith("parallel.t=4 x parallel.p=9 = 36 does not divide cluster.gpus=384")
    assert "parallel.p=8 or 12" in problem


def test_every_broken_rule_is_named_at_once() -> None:
    named = problems(
        point("toy", t=3, p=5, d=200, e=2, v=2, precision="fp8", seq_length=97, micro_batch=7, global_batch=100)
    )
    keys = [
        ("parallel.d=200", "cluster.gpus=384"),
        ("parallel.t=3", "model.heads=4"),
        ("parallel.t=3", "model.ffn=256"),
        ("parallel.t=3", "model.vocab=44"),
        ("parallel.e=2", "mixture of experts"),
        ("parallel.p=5 x parallel.v=2", "4 units (embedding, 2 layers, head)"),
        ("training.precision=fp8", "cluster.peak_tflops"),
        ("training.seq_length=97", "model.context=96"),
        ("training.micro_batch=7 x parallel.d=200", "training.global_batch=100"),
        ("parallel.v=2", "schedule.name=1f1b"),
    ]
    assert len(named) == len(keys)
    for problem, (asked, against) in zip(named, keys, strict=True):
        assert asked in problem
        assert against in problem
    assert str(Invalid(named)).splitlines() == named


def test_bloom_s_neighbours_of_five_tensor_ranks_are_named() -> None:
    named = " ".join(problems(point(t=5, p=12, d=1)))
    assert "parallel.t=5 does not divide model.heads=112. Nearest: parallel.t=4 or 7." in named
    assert "parallel.t=5 does not divide model.ffn=57344. Nearest: parallel.t=4 or 7." in named
    assert "model.vocab" not in named  # 250880 = 5 x 50176


def test_a_long_partition_is_told_short_with_a_nearest_that_can_be_typed() -> None:
    told, *_ = problems(point(partition=(3, *(2,) * 33, 3), p=32))
    assert told == (
        "parallel.partition=[3, 2, 2, … 31 more …, 3] has 35 entries, but parallel.p=32 x "
        "parallel.v=1 makes 32 stages. Nearest: balanced."
    )


def test_an_even_partition_is_refused_where_units_do_not_divide() -> None:
    (problem,) = problems(point(t=1, p=16, d=1, partition="even"))
    assert problem.startswith("parallel.p=16 x parallel.v=1 does not divide 72 units (embedding, 70 layers, head)")
    assert "parallel.partition=even" in problem
    assert problem.endswith("Nearest: parallel.p=12 or 18.")
    assert problems(point(t=1, p=16, d=1)) == []


@pytest.mark.parametrize("p", range(1, 73))
def test_the_lecture_refuses_what_does_not_divide_its_72_blocks(p: int) -> None:
    named = problems(point(costs="lecture", t=1, p=p, d=1))
    assert bool(named) == (72 % p != 0)
    assert all("costs.kind=lecture cuts the model into equal blocks" in problem for problem in named)


def test_the_lecture_knows_three_degrees_alone() -> None:
    (problem,) = problems(point(costs="lecture", t=1, p=1, d=1, c=2))
    assert problem.endswith("costs.kind=lecture knows t, p and d alone. Nearest: parallel.c=1.")


def test_the_lecture_refuses_blocks_that_are_not_equal() -> None:
    assert problems(point(costs="lecture", t=1, p=2, d=1, partition=(36, 36))) == []
    assert problems(point(costs="lecture", t=1, p=2, d=1, partition=(71, 1)))


@pytest.mark.parametrize("schedule", schedules.schedule_names())
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 8), (12, 1), (12, 4), (12, 12)])
def test_one_stage_one_micro_batch_and_fewer_micro_batches_than_stages_are_legal(schedule: str, p: int, m: int) -> None:
    asked = point(schedule=schedule, t=1, p=p, d=1, v=None, micro_batch=1, global_batch=m)
    if refused := schedules.problems(schedule, p, m):  # a law of the schedule's own, such as DualPipe's even p
        assert problems(asked) == refused
        return
    resolved = resolve(asked)
    assert micro_batches(resolved) == m
    batch = evaluate([resolved])
    assert sum(batch.seconds.values())[0] > 0


def test_schedules_longer_than_can_be_simulated_are_refused_with_the_longest() -> None:
    longest = schedules.MAX_ACTIONS // (2 * 12)
    asked = {"t": 1, "p": 12, "d": 1, "micro_batch": 1}
    assert problems(point(**asked, global_batch=longest)) == []
    (problem,) = problems(point(**asked, global_batch=longest + 1))
    assert "parallel.p=12" in problem
    assert str(schedules.MAX_ACTIONS) in problem
    assert f"Nearest: num_microbatches={longest}" in problem


def test_a_schedule_that_is_none_is_told_its_likeness() -> None:
    (problem,) = problems(point(schedule="gpip"))
    assert "schedule.name='gpip'" in problem
    assert "Nearest: gpipe" in problem


def test_shards_are_a_part_of_the_data_and_context_ranks() -> None:
    asked = {"t": 1, "p": 1, "global_batch": 24, "micro_batch": 1, "zero": 3}
    assert problems(point(**asked, d=4, c=2, shard=8)) == []
    assert problems(point(**asked, d=12, shard=3)) == []
    (problem,) = problems(point(**asked, d=12, shard=8))
    assert problem == "parallel.shard=8 does not divide parallel.d=12 x parallel.c=1. Nearest: parallel.shard=6 or 12."
    (problem,) = problems(point(**asked | {"zero": 0}, d=12, shard=3))
    assert problem.startswith("parallel.shard=3 says how many ranks share what parallel.zero divides")
    assert problem.endswith("Nearest: parallel.zero=1, or parallel.shard=null.")


def test_layers_that_run_again_are_listed_for_every_stage() -> None:
    asked = {"t": 1, "p": 4, "d": 1, "recompute": "full"}
    assert problems(point(**asked, recompute_layers=(3, 2, 1, 0))) == []
    (problem,) = problems(point(**asked, recompute_layers=(3, 2)))
    assert problem == (
        "training.recompute_layers=[3, 2] has 2 entries, but parallel.p=4 x parallel.v=1 makes 4 stages. "
        "Nearest: [3, 2, 2, 2]."
    )


def test_a_kernel_that_the_gpu_lacks_is_refused() -> None:
    (problem,) = problems(point(attention="flash3"))
    assert problem == (
        "training.attention=flash3 has no cluster.flash_efficiency on cluster.name=eights. Nearest: flash1 or flash or unfused."
    )


def test_experts_are_spread_over_the_data_and_context_ranks() -> None:
    asked = {"model": "mixture", "t": 1, "p": 1, "global_batch": 24, "micro_batch": 1}
    assert problems(point(**asked, d=4, c=2, e=8)) == []
    (problem,) = problems(point(**asked, d=12, e=8))
    assert problem.startswith("parallel.e=8 does not divide parallel.d=12 x parallel.c=1")
    (problem,) = problems(point(**asked, d=3, e=3))
    assert problem == "parallel.e=3 does not divide model.moe.experts=8. Nearest: parallel.e=2 or 4."


@pytest.mark.parametrize("key", ["t", "p", "d", "c", "e", "v", "micro_batch", "global_batch", "seq_length"])
def test_the_largest_whole_number_is_answered_and_not_computed(key: str) -> None:
    named = problems(point(**{key: 10**12}))
    assert named or key == "seq_length"  # ALiBi stretches to any length
    with pytest.raises(Invalid, match=rf"\.{key}={10**12 + 1} must lie between 1 and"):
        point(**{key: 10**12 + 1})


@LAW
@given(n=st.integers(1, 10**5), wanted=st.integers(1, 10**5))
def test_nearest_divisors_are_the_closest_on_either_side(n: int, wanted: int) -> None:
    every = [k for k in range(1, n + 1) if n % k == 0]
    assert list(divisors(n)) == every
    below, above = [k for k in every if k <= wanted], [k for k in every if k > wanted]
    assert nearest_divisors(n, wanted) == " or ".join(map(str, below[-1:] + above[:1]))


def test_a_schedule_in_waves_spreads_spare_units_over_ranks() -> None:
    llama = dataclasses.replace(BLOOM, layers=80)
    asked = dataclasses.replace(
        point(schedule="zbv", t=1, p=12, d=1, v=None, micro_batch=1, global_batch=24), model=llama
    )
    partition = resolve(asked).layout.partition
    assert sum(partition) == 82  # type: ignore[arg-type]
    on_rank = [int(partition[rank]) + int(partition[23 - rank]) for rank in range(12)]
    assert sorted(on_rank) == [6, 6] + [7] * 10
