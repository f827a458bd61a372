"""A plan's best is what asking every legal layout by itself finds; what is left out is surely no better."""

import functools
from itertools import product

import numpy as np
import pytest

from pipesim import compose, config, legality
from pipesim.checks import Invalid, divisors
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS, evaluate, evaluate_columns, priced
from pipesim.estimate.bounds import bounds
from pipesim.launch import rules
from pipesim.plan import grid
from pipesim.plan.asked.groups import groups
from pipesim.plan.asked.space import Axis, Slice, Space, cut, total, with_values
from pipesim.plan.search import best, question
from pipesim.plan.search import layouts as search
from pipesim.schedules import schedule_names
from pipesim.tasks.plan import tables

SMALL = (
    "model=llama2_7b",
    "model.layers=4",
    "training=megatron",
    "task.plan.recompute=[none,selective,full]",
    "training.global_batch=12",
    "training.seq_length=512",
)


@pytest.fixture(scope="module")
def composed():
    """``composed(*words)``: a plain config that asks for a plan."""
    known = {}

    def make(*words):
        if words not in known:
            with compose.composer() as (composing, _):
                known[words] = config.plain(composing(["experiment=plan", *words]))
        return known[words]

    return make


def found(asked):
    """What the whole search keeps and counts."""
    spaces = search.spaces(asked)
    return best.best([*cut(spaces, 0, total(spaces))], best.wanted_of(asked))


def layout(row):
    keys = ("t", "p", "d", "c", "e", "v", "micro_batch", "schedule", "recompute", "zero", "sequence_parallel")
    return tuple(row[key] for key in keys)


@functools.cache
def every_small(name, *words):
    """Of ``CLUSTERS``, with Megatron-LM's words."""
    with compose.composer() as (composing, _):
        asked = config.plain(composing(["experiment=plan", *SMALL, *CLUSTERS[name], *words]))
    return one_by_one(asked, ("1f1b", "interleaved_1f1b"), ("none", "selective", "full"), (0, 1, 2, 3))


def one_by_one(asked, schedules, recomputes, zeros):
    """Every layout that keeps the rules, each resolved and estimated by itself: (layout, step time, memory, GPUs)."""
    node, units = asked["cluster"]["gpus_per_node"], asked["model"]["layers"] + 2
    rows = []
    for gpus in question.gpu_counts(asked):
        numbers = divisors(gpus)
        for t, p, c in product([*numbers], [*divisors(gpus)], [*divisors(gpus)]):
            if gpus % (t * p * c) or node % t or p > units:
                continue
            d = gpus // (t * p * c)
            sizes = range(1, asked["training"]["global_batch"] + 1)
            words = product(schedules, recomputes, zeros, (False, True))
            for b, v, (schedule, recompute, zero, parallel) in product(sizes, range(1, units // p + 1), [*words]):
                if (parallel and t == 1) or (zero and d * c == 1) or (p == 1 and (schedule != "1f1b" or v > 1)):
                    continue
                if schedule == "interleaved_1f1b" and v == 1:
                    continue
                chosen = {"t": t, "p": p, "d": d, "c": c, "v": v, "zero": zero, "sequence_parallel": parallel}
                changes = {f"parallel.{key}": value for key, value in chosen.items()}
                changes |= {"schedule.name": schedule, "training.recompute": recompute, "training.micro_batch": b}
                try:
                    point = legality.resolve(config.build(with_values(asked, changes)))
                except Invalid:
                    continue
                if rules.problems(point):
                    continue
                made = evaluate([point], wanted=False)
                step_s = sum(made.seconds[item] for item in TIME_ITEMS)[0]
                memory = sum(made.bytes[item] for item in MEMORY_ITEMS)[0]
                rows.append(((t, p, d, c, 1, v, b, schedule, recompute, zero, parallel), step_s, memory, gpus))
    return rows


CLUSTERS = {
    "two nodes of two": ("cluster=dgx_a100", "cluster.gpus=4", "cluster.gpus_per_node=2", "stack=megatron_lm"),
    "little memory": ("cluster=dgx_a100", "cluster.gpus=4", "cluster.memory_gb=14", "stack=megatron_lm"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_best_are_those_of_every_legal_layout_asked_by_itself(composed, name):
    asked = composed(*SMALL, *CLUSTERS[name], "task.plan.best=8")
    table, counts = found(asked)
    every = every_small(name)
    room = 0.9 * asked["cluster"]["memory_gb"] * 1e9
    fit = sorted((step_s, memory) for _, step_s, memory, _ in every if memory <= room)
    assert sum(n for key, n in counts.items() if key != best.COUNTED.FASTER) == len(every)
    assert {each for each, *_ in every} >= {layout(row) for row in table.to_pylist()}
    mine = [(row["step_time_s"], row["memory_bytes"]) for row in question.ranked(asked, table.to_pylist())[:8]]
    np.testing.assert_allclose(mine, fit[:8], rtol=1e-8)
    assert fit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("tokens_per_s_per_gpu", ()),
        ("cost", ("cluster.usd_per_gpu_hour=2",)),
        ("energy", ()),
        ("gpus", ("task.plan.tokens=1e9", "task.plan.deadline_days=1")),
    ],
)
def test_every_objective_ranks_as_asking_each_layout_does(composed, objective, words):
    asked = composed(
        *SMALL, *CLUSTERS["two nodes of two"], f"task.plan.objective={objective}", "task.plan.gpus=[1,2,4]", *words
    )
    ranked = question.ranked(asked, found(asked)[0].to_pylist())
    every = every_small("two nodes of two", "task.plan.gpus=[1,2,4]")
    tokens = asked["training"]["global_batch"] * asked["training"]["seq_length"]
    room = 0.9 * asked["cluster"]["memory_gb"] * 1e9
    fit = [(step_s, gpus) for _, step_s, memory, gpus in every if memory <= room]
    if objective == "gpus":
        days = 1e9 / tokens / 86_400
        step_s, gpus = min(((s, g) for s, g in fit if s * days <= 1), key=lambda each: each[::-1])
        assert (ranked[0]["gpus"], ranked[0]["step_time_s"]) == (gpus, pytest.approx(step_s))
        return
    least_gpu_s = min(step_s * gpus for step_s, gpus in fit) / tokens * 1e6
    worth = {"tokens_per_s_per_gpu": -1e6 / least_gpu_s, "cost": least_gpu_s * 2 / 3600, "energy": least_gpu_s * 400}
    assert question.value(asked, ranked[0]) == pytest.approx(worth[objective])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("stack=torchtitan", "cluster=dgx_h100", "cluster.gpus=4", "task.plan.recompute=null"),
        ("stack=ideal", "cluster=dgx_h100", "cluster.gpus=4", "training.global_batch=4", "task.plan.recompute=[none]"),
        ("stack=nemo", "cluster=dgx_h100", "cluster.gpus=16", "cluster.memory_gb=9", "task.plan.gpus=[4,8,16]"),
        ("stack=megatron_lm", "cluster=dgx_h100", "cluster.gpus=4", "cluster.memory_gb=3"),
        ("model=mixtral_8x7b", "model.layers=4", "stack=nemo", "cluster=dgx_h100", "cluster.gpus=16"),
    ],
)
def test_what_bounds_leave_out_changes_nothing_that_is_kept(composed, words):
    pruned, counts = found(composed(*SMALL, *words))
    whole, every = found(composed(*SMALL, *words, "task.plan.prune=false"))
    assert pruned.equals(whole)
    assert counts.get(best.COUNTED.FASTER) == every.get(best.COUNTED.FASTER)
    assert best.COUNTED.SLOWER not in every


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [name for name in schedule_names() if name not in search.NOT_SEARCHED])
@pytest.mark.parametrize("stack", ["nemo", "megatron_lm"])
def test_no_estimate_lies_below_its_bounds(composed, schedule, stack):
    base = composed(
        *SMALL,
        f"stack={stack}",
        "cluster=dgx_h100",
        "cluster.gpus=64",
        "parallel=megatron",
        "training.global_batch=512",
    )
    for zero, recompute, barrier in ((0, "none", True), (1, "full", True), (3, "selective", True), (1, "none", False)):
        chosen = {"parallel.zero": zero, "training.recompute": recompute, "training.optimizer_barrier": barrier}
        chosen["schedule"] = {**dict.fromkeys(base["schedule"]), "name": schedule}
        axes = {"parallel.t": (1, 4), "parallel.p": (1, 2, 4), "parallel.v": (1, 2), "training.micro_batch": (1, 2)}
        axes |= {"training.seq_length": (512, 4096)}
        space = Space(
            base=with_values(base, chosen),
            axes=tuple(Axis(keys=(key,), values=tuple((each,) for each in values)) for key, values in axes.items()),
        )
        (group,) = groups([Slice(space, 0, len(space))])
        judged = legality.judge(group.like, group.numbers)
        points = grid.points_of(group.like, {name: values[judged.legal] for name, values in judged.numbers.items()})
        if not len(points):
            continue
        low, made = bounds(points, priced(points)), evaluate_columns(points)
        assert (low.step_time_s <= sum(made.seconds[item] for item in TIME_ITEMS)).all()
        assert (low.memory_bytes <= sum(made.bytes[item] for item in MEMORY_ITEMS)).all()
        room = float(np.median(low.memory_bytes))
        tight = bounds(points, priced(points), room)
        assert np.array_equal(tight.memory_bytes, low.memory_bytes)
        assert np.array_equal(tight.step_time_s, np.where(low.memory_bytes <= room, low.step_time_s, 0.0))


def test_the_bound_of_equal_stages_is_the_step_itself(composed):
    asked = composed(*SMALL, "costs=lecture", "stack=ideal", "cluster=dgx_h100", "cluster.gpus=4")
    changes = {
        "parallel.p": 4,
        "parallel.t": 1,
        "parallel.d": 1,
        "parallel.v": 1,
        "parallel.zero": 0,
        "training.micro_batch": 1,
    }
    (group,) = groups([Slice(Space(base=with_values(asked, changes)), 0, 1)])
    points = grid.points_of(group.like, legality.judge(group.like, group.numbers).numbers)
    low, made = bounds(points, priced(points)), evaluate_columns(points)
    assert low.step_time_s[0] == pytest.approx(sum(made.seconds[item] for item in TIME_ITEMS)[0], rel=1e-6)


@pytest.mark.slow
def test_no_layout_of_a_search_breaks_a_rule_and_none_is_there_twice(composed):
    words = (
        "stack=torchtitan",
        "cluster=dgx_h100",
        "cluster.gpus=12",
        "cluster.gpus_per_node=4",
        "task.plan.recompute=null",
    )
    asked = composed(*SMALL, *words)
    spaces = search.spaces(asked)
    rows = grid.evaluate(cut(spaces, 0, total(spaces)), details=False).to_pylist()
    assert {row["status"] for row in rows} <= {"ok", "infeasible"}
    assert len({layout(row) for row in rows}) == len(rows) == total(spaces)
    assert {row["gpus"] for row in rows} == {12}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("task.plan.objective=fast", "task.plan.objective='fast' must be one of step_time"),
        ("task.plan.objective=cost", "needs cluster.usd_per_gpu_hour, which is null"),
        ("task.plan.objective=gpus", "needs task.plan.tokens, which is null"),
        ("task.plan.t=[16]", r"task.plan.t: no layout with 16 keeps the rules.*Nearest: .*8"),
        ("task.plan.t=[]", r"task.plan.t=\[\] allows nothing"),
        ("task.plan.v=[0]", "task.plan.v: 0 must lie between 1 and"),
        ("task.plan.gpus=[1000]", "task.plan.gpus: 1000 are more than cluster.gpus=384. Nearest: 384"),
        ("task.plan.schedule=[1f2b]", "task.plan.schedule: schedule.name='1f2b' is unknown.*Nearest: .*1f1b"),
        ("task.plan.schedule=[zbv]", "task.plan.schedule: no layout with zbv keeps the rules.*Nearest: 1f1b"),
        ("task.plan.recompute=[ful]", "task.plan.recompute: 'ful' must be one of none.*Nearest: full"),
        ("task.plan.zero=[4]", "task.plan.zero: 4 must be one of 0, 1, 2, 3"),
        ("headroom=1", "headroom=1.0 must be a share"),
        ("task.plan.best=0", "task.plan.best=0 must lie between 1 and 100"),
        ("cluster.gpus=383", "no layout of model.name=bloom_176b uses all of 383 GPUs"),
    ],
)
def test_what_cannot_be_asked_names_its_key_and_what_can(composed, word, message):
    with pytest.raises(Invalid, match=message):
        search.spaces(composed(word))


@pytest.mark.parametrize(
    ("words", "modes"),
    [
        (("training.attention=flash",), ["none", "full"]),
        (("training.attention=flash", "task.plan.recompute=[selective]"), ["selective"]),
        (("training.attention=unfused",), ["none", "selective", "full"]),
    ],
)
def test_recomputation_that_saves_no_byte_is_searched_where_it_is_asked_for_alone(composed, words, modes):
    asked = composed("cluster.gpus=8", "model=llama2_7b", "stack=megatron_lm", *words)
    assert search.occurring(search.spaces(asked), "recompute") == modes
    assert ("recompute=selective is left out" in tables.counted(asked, {"fit": 1}).note) == (modes == ["none", "full"])


@pytest.mark.parametrize(("attention", "saves"), [("flash", False), ("unfused", True)])
def test_selective_recomputation_saves_bytes_only_where_scores_are_kept(composed, attention, saves):
    words = ("model=llama2_7b", "parallel=one_gpu", "parallel.t=2", "cluster.gpus=2", f"training.attention={attention}")
    none, selective = (best.own_row(composed(*words, f"training.recompute={mode}")) for mode in ("none", "selective"))
    assert selective["step_time_s"] > none["step_time_s"]
    assert (selective["memory_bytes"] < none["memory_bytes"]) == saves


@pytest.mark.slow
def test_bigsciences_own_layout_is_within_five_percent_of_the_best(composed):
    asked = composed()
    (first, *_) = question.ranked(asked, found(asked)[0].to_pylist())
    own = best.own_row(asked)
    assert (own["t"], own["p"], own["d"], own["micro_batch"]) == (4, 12, 8, 2)
    assert own["step_time_s"] / first["step_time_s"] - 1 < 0.05
