"""The compiled kernel against a plain Python reference that shares no line with it: equal to the last bit."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from pipesim.schedules import action
from pipesim.schedules.action import Action, Op, Schedule
from pipesim.simulate import Deadlock, Links, simulate

CASES = 2000


def reference(schedule, seconds, pair_s, links, p):
    """Asks the ranks in turn, again and again, until nobody gets any further; None if somebody never finishes."""
    todo = [[schedule.action(i) for i in range(a, b)] for a, b in pairwise(int(start) for start in schedule.rank_start)]
    joined = [[bool(schedule.joined[i]) for i in range(a, b)] for a, b in pairwise(schedule.rank_start)]
    reader = {need(a, schedule.stages): rank for rank, actions in enumerate(todo) for a in actions}
    at, clock, held = [0] * p, [0.0] * p, [[] for _ in range(p)]
    made, link_free, start, end = {}, {}, {}, {}

    def hop_s(a, b):
        latency = np.asarray(links.latency_s)
        return float(latency[a, b] if latency.ndim else latency)

    def leave(result, a, b, ready_s):
        bandwidth, size = np.asarray(links.bytes_per_s), np.asarray(links.message_bytes)
        boundary = result[1] if result[0] == "F" else result[1] - 1
        size = float(size[boundary] if size.ndim else size)
        sent_s = max(ready_s, link_free.get((a, b), 0.0))
        link_free[a, b] = sent_s + size * (1 / float(bandwidth[a, b] if bandwidth.ndim else bandwidth))
        return link_free[a, b]

    progress = True
    while progress:
        progress = False
        for rank in range(p):
            if at[rank] == len(todo[rank]) or held[rank]:
                continue
            slot = todo[rank][at[rank] : at[rank] + 1 + joined[rank][at[rank]]]
            needs = [need(a, schedule.stages) for a in slot if need(a, schedule.stages)]
            if not all(result in made for result in needs):
                continue
            progress = True
            begin_s = clock[rank]
            remote = sorted((made[n][0], i, n) for i, n in enumerate(needs) if made[n][1] != rank)
            if links.rendezvous:
                for ended_s, _, result in remote:
                    sender = made[result][1]
                    left_s = leave(result, sender, rank, max(ended_s, clock[rank]))
                    begin_s = max(begin_s, left_s + hop_s(sender, rank))
                    if links.blocking_sends:
                        held[sender].remove(result)
                        clock[sender] = max(clock[sender], left_s)
            else:
                begin_s = max([begin_s, *(left_s + hop_s(made[n][1], rank) for left_s, _, n in remote)])
            begin_s = max([begin_s, *(made[n][0] for n in needs if made[n][1] == rank)])
            total_s = 0.0
            for a in slot:
                total_s += seconds(a)
            end_s = begin_s + (total_s if len(slot) == 1 or pair_s is None else pair_s)
            clock[rank] = end_s
            at[rank] += len(slot)
            for a in slot:
                start[a], end[a] = begin_s, end_s
                result = ("F" if a.op == Op.F else "B", a.stage, a.micro_batch)
                if a.op == Op.W:
                    continue
                made[result] = (end_s, rank)
                to = reader.get(result, rank)
                if to != rank and links.rendezvous and links.blocking_sends:
                    held[rank].append(result)
                elif to != rank and not links.rendezvous:
                    left_s = leave(result, rank, to, end_s)
                    made[result] = (left_s, rank)
                    if links.blocking_sends:
                        clock[rank] = max(clock[rank], left_s)
    done = all(at[rank] == len(todo[rank]) and not held[rank] for rank in range(p))
    return (start, end) if done else None


def need(a: Action, stages: int):
    """The result of the neighbour stage that an action reads."""
    if a.op == Op.F:
        return ("F", a.stage - 1, a.micro_batch) if a.stage > 0 else None
    if a.op == Op.W:
        return None
    return ("B", a.stage + 1, a.micro_batch) if a.stage < stages - 1 else None


def random_schedule(rng: random.Random) -> Schedule:
    """Any placement, any order that can run: nothing of the families' regularity. Pairs may make it deadlock."""
    p, m, stages, split = rng.randint(1, 5), rng.randint(1, 5), rng.randint(1, 7), rng.random() < 0.5
    home = {(s, k): rng.randrange(p) for s in range(stages) for k in range(m)}
    if rng.random() < 0.7:
        home = {(s, k): home[s, 0] for s, k in home}
    chains = {k: [(s, Op.F) for s in range(stages)] for k in range(m)}
    for chain in chains.values():
        chain += [(s, Op.I if split else Op.B) for s in reversed(range(stages))]
    weights: list[Action] = []
    cells: list[list[str]] = [[] for _ in range(p)]
    while any(chains.values()) or weights:
        if weights and (rng.random() < 0.3 or not any(chains.values())):
            a = weights.pop(rng.randrange(len(weights)))
        else:
            k = rng.choice([k for k, chain in chains.items() if chain])
            stage, op = chains[k].pop(0)
            a = Action(stage, op, k)
            if op == Op.I:
                weights.append(Action(stage, Op.W, k))
        cells[home[a.stage, a.micro_batch]].append(str(a))
    return parse([paired(row, rng) for row in cells])


def paired(row: list[str], rng: random.Random) -> list[str]:
    """Some neighbours of different micro-batches run overlapped."""
    out: list[str] = []
    while row:
        first, *row = row
        if row and rng.random() < 0.15 and Action.parse(first).micro_batch != Action.parse(row[0]).micro_batch:
            first, row = f"({first};{row[0]})OVERLAP_F_B", row[1:]
        out.append(first)
    return out


def parse(rows: list[list[str]]) -> Schedule:
    return action.parse("".join(",".join(row) + "\n" for row in rows))


def random_links(rng: random.Random, number, p: int, stages: int) -> Links:
    per_hop = rng.random() < 0.5

    def table(low: float):
        return np.array([[low + number() for _ in range(p)] for _ in range(p)]) if per_hop else low + number()

    sizes = [number() for _ in range(stages - 1)] if rng.random() < 0.5 else number()
    return Links(
        latency_s=table(0.0) if rng.random() < 0.7 else 0.0,
        bytes_per_s=table(1.0),
        message_bytes=sizes if rng.random() < 0.7 else 0.0,
        rendezvous=rng.random() < 0.4,
        blocking_sends=rng.random() < 0.4,
    )


def test_the_kernel_equals_plain_python_to_the_last_bit_on_thousands_of_random_cases():
    deadlocks = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        schedule = random_schedule(rng)
        p, stages, m = schedule.p, schedule.stages, schedule.m

        exact = rng.random() < 0.5

        def number(rng=rng, exact=exact):
            return rng.randint(0, 16) / 8 if exact else rng.random()

        depth = m if rng.random() < 0.3 else 1
        table = np.array([[[number() for _ in range(depth)] for _ in range(stages)] for _ in range(3)])
        pair_s = number() if rng.random() < 0.3 else None
        links = random_links(rng, number, p, stages) if rng.random() < 0.7 else Links(latency_s=number())

        def seconds(a, table=table, depth=depth):
            forward_s, input_s, weight_s = table[:, a.stage, a.micro_batch if depth > 1 else 0]
            return float({Op.F: forward_s, Op.B: input_s + weight_s, Op.I: input_s, Op.W: weight_s}[a.op])

        given = table if depth > 1 else table[:, :, 0]
        expected = reference(schedule, seconds, pair_s, links, p)
        if expected is None:
            deadlocks += 1
            with pytest.raises(Deadlock, match="deadlocks:\nrank"):
                simulate(schedule, *given, pair_s=pair_s, links=links)
            continue
        timeline = simulate(schedule, *given, pair_s=pair_s, links=links)
        for i in range(len(schedule)):
            a = schedule.action(i)
            assert (timeline.start_s[i], timeline.end_s[i]) == (expected[0][a], expected[1][a]), (seed, str(a))
    assert 50 < deadlocks < CASES / 2  # both outcomes are really tried
