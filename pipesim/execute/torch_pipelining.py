"""PyTorch's own pipeline runtime as a peer: the same schedule, or PyTorch's of the same name, on the same stages.

``torch.distributed.pipelining`` keeps what runs a schedule from a CSV (``_PipelineScheduleRuntime._load_csv``) private.
Tested with torch 2.13; a version that lacks it is refused.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules as private
from torch.nn import functional

from pipesim.execute.job import Job, check
from pipesim.execute.launch import Seat, join, run_processes
from pipesim.execute.partition import EMBEDDING, HEAD
from pipesim.schedules import lower
from pipesim.schedules.action import Op
from pipesim.toy.gpt import Gpt

TESTED_VERSIONS = ("2.13",)

OWN_CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "interleaved_zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
"""PyTorch's classes by our names of the same schedules."""

UNSUITED = {
    "dualpipe": "a stage is on two ranks",
    "chimera": "a stage is on two ranks",
    "seq1f1b": "segments of a sequence share keys and values",
}
"""The families that PyTorch's runtime cannot run, and why; it runs all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """What one step of PyTorch's runtime found: the loss of the batch and every parameter's gradient, by name."""

    loss: float
    gradients: dict[str, Tensor]


class Csv(enum.Enum):
    """What PyTorch's runtime is given of our schedule."""

    COMPUTING = "compute_only"
    """The actions alone: PyTorch derives the sends and receives."""
    TRANSFERS = "compute_comms"
    """Those of ``schedules.lower`` too."""


class Order(NamedTuple):
    """One step of ``job`` from ``state`` on ``batch``, of shape (1, sequences, length + 1)."""

    job: Job
    state: Mapping[str, Tensor]
    batch: Tensor
    csv: Csv | None = Csv.COMPUTING
    """None: PyTorch's own class of the schedule's name; of the job's schedule only the places of stages are used."""


def problems(order: Order) -> list[str]:
    """Every reason why PyTorch's runtime cannot run a job that ``job.problems`` finds nothing wrong with."""
    return [*_shapes(order.job), *_stages(order.job), *_class(order)]


def run(orders: Sequence[Order], *, timeout_s: float) -> list[PeerRun]:
    """Each order by PyTorch's runtime, one after the other in the same processes, one for each rank.

    ``ValueError`` names what it cannot run, ``RankFailed`` the rank that failed and the schedule it ran,
    ``RuntimeError`` a version of torch that lacks the runtime.
    """
    check_version()
    for order in orders:
        check(order.job)
        if found := problems(order):
            raise ValueError("\n".join(found))
    ranks = {order.job.p for order in orders}
    if len(ranks) != 1:
        raise ValueError(f"schedules of {sorted(ranks)} ranks cannot share processes. Nearest: a run for each p.")
    found_by_rank = run_processes(_rank, [list(orders)] * ranks.pop(), timeout_s=timeout_s)
    return [_whole(parts) for parts in zip(*found_by_rank, strict=True)]


def check_version() -> None:
    """Raises ``RuntimeError`` where torch lacks what the peer needs."""
    runtime = getattr(private, "_PipelineScheduleRuntime", None)
    lacking = [] if hasattr(runtime, "_load_csv") else ["_PipelineScheduleRuntime._load_csv"]
    lacking += [name for name in OWN_CLASSES.values() if not hasattr(pipelining, name)]
    if lacking:
        nearest = TESTED_VERSIONS[-1]
        raise RuntimeError(
            f"torch {torch.__version__} has no {', '.join(lacking)} in torch.distributed.pipelining; the peer is tested "
            f"with torch {', '.join(TESTED_VERSIONS)}. Nearest: pip install 'torch=={nearest}.*'."
        )


def _shapes(job: Job) -> Iterator[str]:
    for name, degree in (("t", job.t), ("d", job.d), ("steps", job.steps)):
        if degree != 1:
            yield f"{name}={degree}: PyTorch's runtime is compared over one step of one replica. Nearest: {name}=1."
    if job.dropout:
        yield f"dropout={job.dropout}: PyTorch draws other masks. Nearest: dropout=0."
    if job.device != "cpu":
        yield f"device={job.device}: PyTorch's runtime is compared on gloo. Nearest: device=cpu."
    if len(set(job.micro_batches)) > 1:
        even = max(1, job.sequences // len(job.micro_batches))
        yield (
            f"micro_batches={job.micro_batches}: PyTorch's runtime receives all into buffers of one shape. "
            f"Nearest: {len(job.micro_batches)} of {even}."
        )


def _stages(job: Job) -> Iterator[str]:
    schedule = job.schedule
    if schedule.segments > 1:
        yield f"{schedule.name} has {schedule.segments} segments: {UNSUITED['seq1f1b']}. Nearest: 1f1b."
        return
    if len({(s, r) for s, r in zip(schedule.stage, schedule.rank_of(), strict=True)}) > schedule.stages:
        yield (f"{schedule.name}: {UNSUITED['dualpipe']}, and PyTorch's runtime keeps each on one. Nearest: dualpipev.")
    if schedule.stages % schedule.p:
        yield f"{schedule.stages} stages on {schedule.p} ranks: PyTorch wants as many on each."
    last = (schedule.stage == schedule.stages - 1) & (schedule.op == Op.F)
    if np.any(np.diff(schedule.micro_batch[last]) < 0):
        yield (
            f"{schedule.name}: the last stage's forwards do not run in the order of their micro-batches, by which "
            "PyTorch's runtime finds their losses."
        )


def _class(order: Order) -> Iterator[str]:
    name = order.job.schedule.name
    if order.csv is None and name not in OWN_CLASSES:
        yield f"PyTorch has no class for schedule {name}. Nearest: csv={Csv.COMPUTING.name}; it has {', '.join(OWN_CLASSES)}."


def _whole(ranks: Sequence[_Found]) -> PeerRun:
    """The whole model's gradients: a tied table has one of each of its uses, which are summed."""
    gradients: dict[str, Tensor] = {}
    for found in ranks:
        for name, gradient in found.gradients:
            gradients[name] = gradients[name] + gradient if name in gradients else gradient
    return PeerRun(loss=sum(loss for found in ranks for loss in found.losses), gradients=gradients)


class _Found(NamedTuple):
    """What one rank has after a step: the losses of the last stage, and the gradients of its stages."""

    losses: list[float]
    gradients: list[tuple[str, Tensor]]


def _rank(seat: Seat, orders: Sequence[Order]) -> list[_Found]:
    with join(seat):
        return [_step(seat, order) for order in orders]


def _step(seat: Seat, order: Order) -> _Found:
    job, losses = order.job, list[Tensor]()
    parts = {stage: _part(job, order.state, stage) for stage in _stages_of(job, seat.rank)}
    runtime = _runtime(order, parts)
    tokens = (order.batch[0, :, :-1],) if 0 in parts else ()
    targets = order.batch[0, :, 1:] if job.schedule.stages - 1 in parts else None
    seat.tell(f"{job.schedule.name} by PyTorch's {type(runtime).__name__}")
    runtime.step(*tokens, target=targets, losses=losses, return_outputs=False)
    table = "tokens.weight" if job.model.tied else "head.weight"
    gradients = [
        (table if name == "head.weight" else name, parameter.grad)
        for part in parts.values()
        for name, parameter in part.named_parameters()
        if parameter.grad is not None
    ]
    return _Found([loss.item() for loss in losses], gradients)


def _stages_of(job: Job, rank: int) -> list[int]:
    start, stop = job.schedule.rank_start[rank : rank + 2]
    return [int(stage) for stage in np.unique(job.schedule.stage[start:stop])]


def _runtime(order: Order, parts: Mapping[int, nn.Module]) -> Any:
    """PyTorch's runtime with the order's schedule, or its own class. The losses are sums, so nothing is scaled."""
    schedule, tokens = order.job.schedule, order.job.tokens
    stages = [pipelining.PipelineStage(part, s, schedule.stages, torch.device("cpu")) for s, part in parts.items()]

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / tokens

    given: dict[str, Any] = {"n_microbatches": schedule.m, "loss_fn": loss, "scale_grads": False}
    if order.csv is None:
        own = getattr(pipelining, OWN_CLASSES[schedule.name])
        return own(stages[0] if issubclass(own, private.PipelineScheduleSingle) else stages, **given)
    runtime = private._PipelineScheduleRuntime(stages, **given)  # type: ignore[no-untyped-call]
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(schedule.to_csv() if order.csv is Csv.COMPUTING else lower(schedule).to_csv())
        file.flush()
        runtime._load_csv(file.name, format=order.csv.value)
    return runtime


def _part(job: Job, state: Mapping[str, Tensor], stage: int) -> nn.Module:
    """A stage in plain modules, its parameters named as the whole model's."""
    whole = Gpt(job.model).to(job.torch_dtype)
    whole.load_state_dict({"head.weight": state["tokens.weight"], **state} if job.model.tied else state)
    return _Part(whole, job.units[stage])


class _Part(nn.Module):
    def __init__(self, whole: Gpt, units: tuple[str, ...]) -> None:
        super().__init__()
        self.starts, self.ends = EMBEDDING in units, HEAD in units
        if self.starts:
            self.tokens, self.positions = whole.tokens, whole.positions
        numbers = [unit.removeprefix("blocks.") for unit in units if unit not in (EMBEDDING, HEAD)]
        self.blocks = nn.ModuleDict({number: whole.blocks[int(number)] for number in numbers})
        if self.ends:
            self.norm, self.head = whole.norm, whole.head

    def forward(self, x: Tensor) -> Tensor:
        if self.starts:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.ends else x
