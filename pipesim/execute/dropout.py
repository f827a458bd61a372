"""Dropout that falls alike wherever it is computed: reseeded for every step, replica, micro-batch and layer."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """The masks of one micro-batch: ``sequences`` sequences of ``length`` tokens, ``width`` features each."""

    rate: float
    seed: int
    step: int
    replica: int
    micro_batch: int
    sequences: int
    length: int
    width: int

    def mask(self, layer: str, x: Tensor, start: int = 0) -> Tensor:
        """What to multiply ``x`` with, the part of ``layer``'s output from position ``start`` on.

        Drawn for the whole micro-batch on the CPU and cut, so every way to divide it drops the same features.
        """
        text = f"{self.seed} {self.step} {self.replica} {self.micro_batch} {layer}"
        generator = torch.Generator().manual_seed(int.from_bytes(sha256(text.encode()).digest()[:7], "big"))
        drawn = torch.rand(self.sequences, self.length, self.width, generator=generator)
        kept = drawn[:, start : start + x.shape[1]] >= self.rate
        return kept.to(x.device, x.dtype) / (1 - self.rate)


def dropped(masks: Dropout | None, layer: str, x: Tensor, start: int = 0) -> Tensor:
    """``x`` with its features dropped, or ``x`` itself without dropout."""
    return x if masks is None else x * masks.mask(layer, x, start)
