"""The best order of all: an exact search with CP-SAT, for small cases, under a cap on held activations.

Needs ortools (``pip install pipesim[exact]``). Times are whole numbers, as the solver wants them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipesim.schedules import action
from pipesim.schedules.action import Action, Op, Schedule
from pipesim.schedules.rules import results

Objective = Literal["makespan", "span"]


class Optimum(NamedTuple):
    """The best order found; ``proven`` says that no order is shorter, otherwise none is shorter than ``bound``."""

    schedule: Schedule
    value: int
    bound: float
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to search: ``rank_of_stage`` places the stages, ``max_held`` caps the activations that a rank holds at once.

    ``split`` allows W apart from I. ``objective`` is the makespan or the longest rank's span (the zero-bubble papers').
    """

    rank_of_stage: Sequence[int]
    m: int
    forward: int = 1
    input_grad: int = 1
    weight_grad: int = 1
    latency: int = 0
    max_held: int | None = None
    split: bool = True
    objective: Objective = "makespan"


def optimum(question: Question, time_limit_s: float = 60.0) -> Optimum:
    """Searches all orders. Micro-batches of a stage run in their order, which loses nothing as they are alike.

    Raises ``ImportError`` without ortools and ``ValueError`` if no order keeps the cap, or none was found in time.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise ImportError("the exact search needs ortools: pip install 'pipesim[exact]'") from None
    model = cp_model.CpModel()
    cells = _cells(question)
    horizon = _horizon(question, cells)
    start = {cell: model.new_int_var(0, horizon, str(cell)) for cell in cells}
    _keep_the_rules(model, question, cells, start)
    _one_at_a_time(model, question, cells, start)
    if question.max_held is not None:
        _hold_at_most(model, question, cells, start, horizon)
    model.minimize(_length(model, question, cells, start, horizon))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise ValueError(f"max_held={question.max_held}: {solver.status_name(status).lower()}; no order was found.")
    at = {cell: solver.value(start[cell]) for cell in cells}
    proven = status == cp_model.OPTIMAL
    return Optimum(_schedule(question, cells, at), round(solver.objective_value), solver.best_objective_bound, proven)


def _cells(question: Question) -> dict[Action, int]:
    """Every action and how long it takes."""
    took = {Op.F: question.forward, Op.B: question.input_grad + question.weight_grad}
    if question.split:
        took = {Op.F: question.forward, Op.I: question.input_grad, Op.W: question.weight_grad}
    stages = range(len(question.rank_of_stage))
    return {Action(stage, op, k): took[op] for stage in stages for op in took for k in range(question.m)}


def _horizon(question: Question, cells: dict[Action, int]) -> int:
    hops = 2 * len(question.rank_of_stage) * question.m * question.latency
    return sum(cells.values()) + hops


def _keep_the_rules(model: Any, question: Question, cells: dict[Action, int], start: dict[Action, Any]) -> None:
    """What an action needs has ended and arrived; equal actions run in the order of their micro-batches."""
    remote, local, made = results(len(question.rank_of_stage))
    maker = {(int(made[a.op, a.stage]), a.micro_batch): a for a in cells if made[a.op, a.stage] >= 0}
    for a in cells:
        for row in (int(remote[a.op, a.stage]), int(local[a.op, a.stage])):
            if row >= 0:
                needed = maker[row, a.micro_batch]
                far = question.rank_of_stage[needed.stage] != question.rank_of_stage[a.stage]
                model.add(start[a] >= start[needed] + cells[needed] + far * question.latency)
        if a.micro_batch > 0:
            before = a._replace(micro_batch=a.micro_batch - 1)
            model.add(start[a] >= start[before] + cells[before])


def _one_at_a_time(model: Any, question: Question, cells: dict[Action, int], start: dict[Action, Any]) -> None:
    for rank in set(question.rank_of_stage):
        own = [a for a in cells if question.rank_of_stage[a.stage] == rank]
        model.add_no_overlap([model.new_fixed_size_interval_var(start[a], cells[a], str(a)) for a in own])


def _hold_at_most(
    model: Any, question: Question, cells: dict[Action, int], start: dict[Action, Any], horizon: int
) -> None:
    """An activation is held from the start of its F to the end of its W, or of its B."""
    last = Op.W if question.split else Op.B
    for rank in set(question.rank_of_stage):
        held = []
        for a in (a for a in cells if a.op == Op.F and question.rank_of_stage[a.stage] == rank):
            freed = a._replace(op=last)
            length = model.new_int_var(0, horizon, f"{a} is held")
            held.append(model.new_interval_var(start[a], length, start[freed] + cells[freed], f"{a} held"))
        model.add_cumulative(held, [1] * len(held), question.max_held)


def _length(model: Any, question: Question, cells: dict[Action, int], start: dict[Action, Any], horizon: int) -> Any:
    """The variable to minimise."""
    length = model.new_int_var(0, horizon, question.objective)
    for rank in set(question.rank_of_stage):
        own = [a for a in cells if question.rank_of_stage[a.stage] == rank]
        begin: Any = 0
        if question.objective == "span":
            begin = model.new_int_var(0, horizon, f"rank {rank} begins")
            model.add_min_equality(begin, [start[a] for a in own])
        for a in own:
            model.add(length >= start[a] + cells[a] - begin)
        model.add(length >= sum(cells[a] for a in own))
    return length


def _schedule(question: Question, cells: dict[Action, int], at: dict[Action, int]) -> Schedule:
    ranks = range(max(question.rank_of_stage) + 1)
    rows = [
        sorted((a for a in cells if question.rank_of_stage[a.stage] == rank), key=lambda a: (at[a], at[a] + cells[a]))
        for rank in ranks
    ]
    return action.parse("".join(",".join(map(str, row)) + "\n" for row in rows), "optimum")
