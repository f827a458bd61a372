"""What is to be executed: a schedule, a model, the batch and how both are divided over processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from pipesim.execute import partition
from pipesim.schedules import rules
from pipesim.schedules.action import Schedule
from pipesim.simulate import Links, simulate
from pipesim.toy.gpt import GptSpec

DTYPES = {"float32": torch.float32, "float64": torch.float64}
OPTIMIZERS = ("sgd", "adam")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training run of ``steps`` optimizer steps on t x p x d processes; ``problems`` says what is wrong with one.

    ``micro_batches`` are the sequences in each micro-batch of one replica, ``length`` the tokens of a sequence.
    ``partition`` is the number of units (embedding, blocks, head) in each stage; None divides them evenly. ``zero=1``
    shards the optimizer's state over the copies of each parameter. ``dropout`` acts on what attention and MLP add.
    """

    schedule: Schedule
    model: GptSpec
    micro_batches: tuple[int, ...]
    length: int
    t: int = 1
    d: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    dtype: str = "float32"
    steps: int = 1
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    dropout: float = 0.0
    seed: int = 0
    partition: tuple[int, ...] | None = None
    device: str = "cpu"

    @property
    def p(self) -> int:
        return self.schedule.p

    @property
    def world(self) -> int:
        """Number of processes."""
        return self.t * self.p * self.d

    @property
    def sequences(self) -> int:
        """Sequences of one replica's batch."""
        return sum(self.micro_batches)

    @property
    def tokens(self) -> int:
        """Tokens of the whole batch, every replica's: what the loss is a mean over."""
        return self.d * self.sequences * self.length

    @property
    def segment_length(self) -> int:
        """Tokens of each sequence in what the schedule calls a micro-batch."""
        return self.length // self.schedule.segments

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def units(self) -> tuple[tuple[str, ...], ...]:
        """The units of each stage."""
        return partition.units_of_stages(self.model, self.schedule.stages, self.partition)


class Place(NamedTuple):
    """Where a process stands: pipeline rank, replica and tensor-parallel rank."""

    pipeline: int
    replica: int
    tensor: int

    def number(self, job: Job) -> int:
        """Its number in the world; tensor ranks are neighbours, then replicas, then pipeline ranks (Megatron's order)."""
        return (self.pipeline * job.d + self.replica) * job.t + self.tensor


def places(job: Job) -> list[Place]:
    """Every process of the job, by number."""
    return [Place(r, i, k) for r in range(job.p) for i in range(job.d) for k in range(job.t)]


def even_micro_batches(sequences: int, size: int) -> tuple[int, ...]:
    """Micro-batches of ``size`` sequences; the last one takes what is left.

    >>> even_micro_batches(7, 2)
    (2, 2, 2, 1)
    """
    full, left = divmod(sequences, size)
    return (size,) * full + ((left,) if left else ())


def check(job: Job) -> None:
    """Raises ``ValueError`` that names every broken rule."""
    if found := problems(job):
        raise ValueError("\n".join(found))


def problems(job: Job) -> list[str]:
    """Every rule that the job breaks, with the nearest values that work; found before any process starts."""
    return [
        *_choices(job),
        *_batch(job),
        *partition.problems(job.model, job.schedule.stages, job.partition),
        *_tensor(job),
        *_schedule(job),
        *_processes(job),
    ]


def _choices(job: Job) -> Iterator[str]:
    for name, value, known in (
        ("dtype", job.dtype, tuple(DTYPES)),
        ("optimizer", job.optimizer, OPTIMIZERS),
        ("device", job.device, DEVICES),
        ("zero", job.zero, (0, 1)),
    ):
        if value not in known:
            yield f"{name}={value!r} must be one of {', '.join(map(str, known))}. Nearest: {known[0]}."
    for name, count in (("t", job.t), ("d", job.d), ("steps", job.steps), ("length", job.length)):
        if count < 1:
            yield f"{name}={count} must be at least 1. Nearest: 1."
    if not 0 <= job.dropout < 1:
        yield f"dropout={job.dropout} must be at least 0 and below 1. Nearest: 0."


def _batch(job: Job) -> Iterator[str]:
    schedule, segments = job.schedule, job.schedule.segments
    wanted = schedule.m // segments
    if len(job.micro_batches) != wanted:
        of = f" of {segments} segments" if segments > 1 else ""
        yield (
            f"micro_batches has {len(job.micro_batches)} entries; {schedule.name} runs {wanted} micro-batches{of}, "
            f"each of which needs its size. Nearest: {wanted} entries."
        )
    for number, size in enumerate(job.micro_batches):
        if size < 1:
            yield f"micro_batches[{number}]={size} must be at least 1 sequence. Nearest: 1."
    if job.length > job.model.context:
        yield f"length={job.length} exceeds the model's context of {job.model.context}. Nearest: {job.model.context}."
    step = segments * (job.t if job.sequence_parallel else 1)
    if job.length % step:
        parts = f"{segments} segments" + (f" x t={job.t} ranks of sequence parallelism" if step > segments else "")
        yield f"length={job.length} does not divide into {parts}. Nearest: {max(step, job.length - job.length % step)}."


def _tensor(job: Job) -> Iterator[str]:
    heads = job.model.heads
    if job.t > 1 and heads % job.t:
        nearest = max(k for k in range(1, job.t) if heads % k == 0)
        yield f"t={job.t} must divide the model's {heads} heads. Nearest: t={nearest}."


def _schedule(job: Job) -> Iterator[str]:
    """The schedule is legal, and no rank waits for ever even if a message only leaves when its reader asks for it."""
    try:
        rules.validate(job.schedule)
        simulate(job.schedule, links=Links(rendezvous=True))
    except ValueError as error:
        yield f"schedule {job.schedule.name} cannot run: {error}"


def _processes(job: Job) -> Iterator[str]:
    if job.device == "cuda" and torch.cuda.device_count() < job.world:
        yield (
            f"t={job.t} x p={job.p} x d={job.d} needs {job.world} GPUs, one per process; this machine has "
            f"{torch.cuda.device_count()}. Nearest: device=cpu."
        )
