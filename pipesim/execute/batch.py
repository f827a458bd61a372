"""The tokens of a step, and which of them a micro-batch of a replica has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from pipesim.execute.job import Job


def random_batches(job: Job) -> list[Tensor]:
    """One batch a step, drawn from the job's seed: int64 of shape (d, sequences, length + 1)."""
    generator = torch.Generator().manual_seed(job.seed)
    shape = (job.d, job.sequences, job.length + 1)
    return [torch.randint(job.model.vocab, shape, generator=generator) for _ in range(job.steps)]


def check_batches(job: Job, batches: Sequence[Tensor]) -> None:
    """Raises ``ValueError`` for the first batch that does not divide as the job says."""
    if len(batches) != job.steps:
        raise ValueError(f"{len(batches)} batches for steps={job.steps}. Nearest: one batch a step.")
    wanted = (job.d, job.sequences, job.length + 1)
    for step, batch in enumerate(batches):
        if tuple(batch.shape) != wanted or batch.dtype != torch.int64:
            raise ValueError(
                f"the batch of step {step} has shape {tuple(batch.shape)} and type {batch.dtype}; d={job.d} replicas of "
                f"micro-batches {job.micro_batches} with length={job.length} need int64 of shape {wanted}: inputs and, "
                "one later, targets."
            )
        if not 0 <= int(batch.min()) <= int(batch.max()) < job.model.vocab:
            raise ValueError(
                f"the batch of step {step} has tokens from {int(batch.min())} to {int(batch.max())}; the model knows 0 "
                f"to {job.model.vocab - 1}."
            )


def micro_batch(job: Job, batch: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one of a replica's micro-batches, each (sequences, length); ``batch`` is that replica's."""
    ends = list(accumulate(job.micro_batches))
    rows = batch[ends[number] - job.micro_batches[number] : ends[number]]
    return rows[:, :-1], rows[:, 1:]
