"""Measures what this machine's kernels take: matrix products, attention and copies, as curves of seconds by size.

``profile_links`` measures messages between two processes.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LEAST_S = 1e-3
"""Each repeat calls a short kernel until about this much has passed, so that neither clock nor launch is what is seen."""
MOST_CALLS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where kernels run. ``memory_bytes`` and ``multiprocessors`` are the machine's; a CPU's are its RAM and its cores."""

    kind: str
    name: str
    count: int
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Seconds of one (rows x inputs) (inputs x outputs)."""

    rows: int
    outputs: int
    inputs: int
    seconds: float

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.outputs * self.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Seconds of one sequence's causal attention, forward, without its projections."""

    length: int
    heads: int
    head_dim: int
    seconds: float

    @property
    def flops(self) -> int:
        """Of two products, the masked half left out."""
        return 2 * self.heads * self.length**2 * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Seconds to copy so many bytes, each read once and written once."""

    copied_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Every curve of one device, in the order that was asked for.

    ``core_share`` is the share of the time for which a CPU's threads had a core: below 1 where other programs wanted it.
    """

    core_share: float
    products: tuple[Product, ...]
    attention: tuple[Attention, ...]
    copies: tuple[Copy, ...]


def gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def device(kind: str) -> Device:
    """The first GPU for ``cuda``, this machine's processor for ``cpu``."""
    if kind == "cuda":
        told = torch.cuda.get_device_properties(0)
        return Device(
            kind=kind, name=told.name, count=gpus(), multiprocessors=told.multi_processor_count,
            memory_bytes=told.total_memory,
        )  # fmt: skip
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Device(kind=kind, name=_processor(), count=cores, multiprocessors=cores, memory_bytes=_ram_bytes())


def kernels(
    kind: str,
    dtype: str,
    *,
    products: Sequence[tuple[int, int, int]],
    lengths: Sequence[int],
    heads: int,
    head_dim: int,
    copied_bytes: Sequence[int],
    repeats: int,
    threads: int,
) -> Kernels:
    """Medians of ``repeats`` after one warm-up; ``products`` are (M, N, K), a CPU computes with ``threads`` threads."""
    with _threads(threads), torch.inference_mode():
        start_s, busy_s = time.perf_counter(), time.process_time()
        multiplied = tuple(_product(shape, kind, DTYPES[dtype], repeats) for shape in products)
        attended = tuple(_attention(length, heads, head_dim, kind, DTYPES[dtype], repeats) for length in lengths)
        copied = tuple(_copy(size, kind, repeats) for size in copied_bytes)
        had_s, wanted_s = time.process_time() - busy_s, time.perf_counter() - start_s
    share = min(1.0, had_s / wanted_s) if kind == "cpu" else 1.0
    return Kernels(products=multiplied, attention=attended, copies=copied, core_share=share)


def _product(shape: tuple[int, int, int], kind: str, dtype: torch.dtype, repeats: int) -> Product:
    rows, outputs, inputs = shape
    left, right = (torch.randn(size, device=kind).to(dtype) for size in ((rows, inputs), (inputs, outputs)))
    into = torch.empty(rows, outputs, device=kind, dtype=dtype)
    seconds = seconds_of(lambda: torch.mm(left, right, out=into), kind, repeats)
    return Product(rows=rows, outputs=outputs, inputs=inputs, seconds=seconds)


def _attention(length: int, heads: int, head_dim: int, kind: str, dtype: torch.dtype, repeats: int) -> Attention:
    query, key, value = torch.randn(3, 1, heads, length, head_dim, device=kind).to(dtype)
    seconds = seconds_of(lambda: scaled_dot_product_attention(query, key, value, is_causal=True), kind, repeats)
    return Attention(length=length, heads=heads, head_dim=head_dim, seconds=seconds)


def _copy(size: int, kind: str, repeats: int) -> Copy:
    source, target = torch.ones(2, size, device=kind, dtype=torch.uint8)
    return Copy(copied_bytes=size, seconds=seconds_of(lambda: target.copy_(source), kind, repeats))


def seconds_of(work: Callable[[], object], kind: str, repeats: int) -> float:
    """Median seconds of one call, after a call to warm up and one to see how many make up ``LEAST_S``."""
    _run(work, kind, 1)
    calls = min(MOST_CALLS, max(1, math.ceil(LEAST_S / _run(work, kind, 1))))
    return median(_run(work, kind, calls) / calls for _ in range(repeats))


def _run(work: Callable[[], object], kind: str, calls: int) -> float:
    wait(kind)
    start_s = time.perf_counter()
    for _ in range(calls):
        work()
    wait(kind)
    return time.perf_counter() - start_s


def wait(kind: str) -> None:
    """Until everything that was launched is done; a CPU has done it already."""
    if kind == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str:
    """Its name as the kernel tells it, else its architecture."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
