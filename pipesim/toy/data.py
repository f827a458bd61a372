"""Batches of a tokenized text: windows that start anywhere, and the same windows one token later."""

from __future__ import annotations

import torch
from torch import Tensor


def get_batch(data: Tensor, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each int64 of shape (batch, length): ``targets[:, i]`` follows ``inputs[:, i]`` in the text.

    ``data`` are the text's tokens, int64 of shape (n,); every start of ``length`` + 1 tokens is equally likely.
    Raises ``ValueError`` for data of another type or shape, sizes below 1, and a text that is too short.
    """
    _check(data, batch, length)
    starts = torch.randint(len(data) - length, (batch, 1), generator=generator)
    windows = data[starts + torch.arange(length + 1)]
    return windows[:, :-1], windows[:, 1:]


def _check(data: Tensor, batch: int, length: int) -> None:
    if data.dim() != 1 or data.dtype != torch.int64:
        shape = tuple(data.shape)
        raise ValueError(f"data of shape {shape} and type {data.dtype} must be int64 tokens of shape (n,).")
    for name, size in (("batch", batch), ("length", length)):
        if size < 1:
            raise ValueError(f"{name}={size} must be at least 1. Nearest: 1.")
    if len(data) < length + 1:
        nearest = f" Nearest: length={len(data) - 1}." if len(data) > 1 else ""
        raise ValueError(
            f"length={length} needs a text of at least {length + 1} tokens, the window and the token after it; "
            f"this one has {len(data)}.{nearest}"
        )
