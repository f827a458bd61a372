"""What is asked: model, cluster, layout, training and cost constants. Frozen, in SI units, checked when made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

MAX_INT = 10**12
"""Larger whole numbers are refused: products of several must stay exact in 64 bits."""

MAX_LAYERS = 100_000
"""More layers are refused: each is placed on a stage."""

Precision = Literal["bf16", "fp16", "fp8"]
Recompute = Literal["none", "selective", "full"]
Attention = Literal["unfused", "flash"]
Positions = Literal["learned", "rotary", "alibi"]
Norm = Literal["layernorm", "rmsnorm"]
CostKind = Literal["full", "lecture"]


class Invalid(ValueError):
    """What was asked breaks rules. ``problems`` holds one sentence for each, with its config key and value."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Checks:
    """Collects every broken rule of one spec, so that a user sees them all at once."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.problems: list[str] = []

    def whole(self, low: int = 1, **values: int | None) -> None:
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                self.problems.append(f"{self.group}.{name}={value!r} must be a whole number.")
            elif not low <= value <= MAX_INT:
                nearest = min(max(value, low), MAX_INT)
                self.problems.append(
                    f"{self.group}.{name}={value} must lie between {low} and {MAX_INT:.0e}. Nearest: {nearest}."
                )

    def positive(self, **values: float) -> None:
        self._finite(values, "above 0", lambda value: value > 0)

    def not_negative(self, **values: float) -> None:
        self._finite(values, "of at least 0", lambda value: value >= 0)

    def _finite(self, values: Mapping[str, float], low: str, holds: Callable[[float], bool]) -> None:
        for name, value in values.items():
            if not (math.isfinite(value) and holds(value)):
                self.problems.append(f"{self.group}.{name}={value} must be a finite number {low}.")

    def fraction(self, **values: float) -> None:
        for name, value in values.items():
            if not 0 <= value <= 1:
                self.problems.append(f"{self.group}.{name}={value} must lie between 0 and 1.")

    def choice(self, options: object, **values: str) -> None:
        for name, value in values.items():
            if value not in get_args(options):
                self.problems.append(f"{self.group}.{name}={value!r} must be one of {', '.join(get_args(options))}.")

    def rule(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def done(self) -> None:
        if self.problems:
            raise Invalid(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention: queries, keys and values pass through low-rank latents.

    Source: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1 and appendix C.
    """

    query_rank: int
    kv_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int

    def __post_init__(self) -> None:
        checks = _Checks("model.mla")
        checks.whole(**{name: getattr(self, name) for name in self.__slots__})
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of experts: ``top_k`` of ``experts`` routed gated MLPs of width ``ffn`` for each token, plus shared ones.

    The first ``dense_layers`` layers keep the model's dense MLP.
    """

    experts: int
    top_k: int
    ffn: int
    shared_experts: int = 0
    dense_layers: int = 0
    router_bias: bool = False

    def __post_init__(self) -> None:
        checks = _Checks("model.moe")
        checks.whole(experts=self.experts, top_k=self.top_k, ffn=self.ffn)
        checks.whole(low=0, shared_experts=self.shared_experts, dense_layers=self.dense_layers)
        checks.done()
        checks.rule(
            self.top_k <= self.experts, f"model.moe.top_k={self.top_k} exceeds model.moe.experts={self.experts}."
        )
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder-only transformer. Parameters are computed from it (``costs.parameters``), never typed in.

    ``ffn`` is the width of one dense MLP, ``gated`` a SwiGLU-like one with a third matrix. ``context`` is the sequence
    length it is trained with, in tokens. ``vocab`` is the number of embedding rows, padding included.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    gated: bool
    bias: bool
    tied_embeddings: bool
    embedding_norm: bool
    final_norm: bool
    positions: Positions
    norm: Norm
    mla: Mla | None = None
    moe: Moe | None = None
    source: str = ""

    def __post_init__(self) -> None:
        checks = _Checks("model")
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context")
        checks.whole(**{name: getattr(self, name) for name in sizes})
        checks.rule(
            self.layers <= MAX_LAYERS or self.layers > MAX_INT,
            f"model.layers={self.layers} must be at most {MAX_LAYERS}. Nearest: {MAX_LAYERS}.",
        )
        checks.choice(Positions, positions=self.positions)
        checks.choice(Norm, norm=self.norm)
        checks.done()
        checks.rule(
            self.heads % self.kv_heads == 0,
            f"model.kv_heads={self.kv_heads} must divide model.heads={self.heads}. "
            f"Nearest: {nearest_divisors(self.heads, self.kv_heads)}.",
        )
        if self.moe is not None:
            checks.rule(
                self.moe.dense_layers <= self.layers,
                f"model.moe.dense_layers={self.moe.dense_layers} exceeds model.layers={self.layers}.",
            )
        checks.done()

    @property
    def units(self) -> int:
        """What is placed on stages: the embedding, each layer, the head."""
        return self.layers + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One direction of a link as one GPU sees it: peak bytes per second and seconds per message."""

    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Equal nodes of equal GPUs. Bandwidths are peak, one direction.

    ``peak_flops_per_s`` is dense (no sparsity) for one GPU, by precision; a precision that is missing has no
    tensor-core path on this GPU. ``intra_node`` is one GPU's link to the others of its node, ``inter_node`` one whole
    node's network.
    """

    name: str
    gpus: int
    gpus_per_node: int
    peak_flops_per_s: Mapping[Precision, float] = field(hash=False)
    memory_bytes: float
    hbm_bytes_per_s: float
    intra_node: LinkSpec
    inter_node: LinkSpec
    source: str = ""

    def __post_init__(self) -> None:
        checks = _Checks("cluster")
        checks.whole(gpus=self.gpus, gpus_per_node=self.gpus_per_node)
        checks.positive(**{f"peak_tflops.{k}": v / 1e12 for k, v in self.peak_flops_per_s.items()})
        checks.positive(
            memory_gb=self.memory_bytes / 1e9,
            hbm_gb_per_s=self.hbm_bytes_per_s / 1e9,
            intra_node_gb_per_s=self.intra_node.bandwidth_bytes_per_s / 1e9,
            inter_node_gb_per_s=self.inter_node.bandwidth_bytes_per_s / 1e9,
        )
        checks.not_negative(
            intra_node_latency_us=self.intra_node.latency_s * 1e6,
            inter_node_latency_us=self.inter_node.latency_s * 1e6,
        )
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """How the model is cut: degrees of tensor, pipeline, data, context and expert parallelism, and virtual stages.

    ``d=None`` takes every GPU of the cluster, ``v=None`` as many stages per rank as the schedule is made for.
    ``partition`` is ``balanced`` (as even as the units allow), ``even`` (refused where they do not divide) or the units
    of each of the p*v stages in order.
    """

    t: int = 1
    p: int = 1
    d: int | None = None
    c: int = 1
    e: int = 1
    v: int | None = None
    zero: int = 0
    sequence_parallel: bool = False
    partition: Literal["balanced", "even"] | tuple[int, ...] = "balanced"

    def __post_init__(self) -> None:
        checks = _Checks("parallel")
        checks.whole(t=self.t, p=self.p, d=self.d, c=self.c, e=self.e, v=self.v)
        checks.rule(
            isinstance(self.zero, int) and 0 <= self.zero <= 3, f"parallel.zero={self.zero} must be 0, 1, 2 or 3."
        )
        if isinstance(self.partition, str):
            checks.rule(
                self.partition in ("balanced", "even"),
                f"parallel.partition={self.partition!r} must be balanced, even or a list of units per stage.",
            )
        else:
            for units in self.partition:
                checks.whole(low=0, partition=units)
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One step: batch sizes in sequences, ``seq_length`` in tokens (``None`` takes the model's context), the recipe.

    ``gradient_bytes`` are held for each parameter, ``reduce_bytes`` sent for each in the gradient reduction.
    """

    micro_batch: int
    global_batch: int
    seq_length: int | None = None
    precision: Precision = "bf16"
    recompute: Recompute = "none"
    attention: Attention = "flash"
    dropout: bool = False
    gradient_bytes: int = 4
    reduce_bytes: int = 4

    def __post_init__(self) -> None:
        checks = _Checks("training")
        checks.whole(micro_batch=self.micro_batch, global_batch=self.global_batch, seq_length=self.seq_length)
        checks.whole(gradient_bytes=self.gradient_bytes, reduce_bytes=self.reduce_bytes)
        checks.choice(Precision, precision=self.precision)
        checks.choice(Recompute, recompute=self.recompute)
        checks.choice(Attention, attention=self.attention)
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConstants:
    """The few measured constants of the cost model; ``kind="lecture"`` is the idealised model, which uses none of them.

    Efficiencies are achieved over peak. ``gemm_half_dim`` is the size of a matrix dimension at which a matrix product
    reaches half its asymptotic speed. Bytes are per element of the named tensor, moved forward through memory.
    """

    kind: CostKind
    gemm_efficiency: float = 1.0
    gemm_half_dim: float = 0.0
    attention_efficiency: float = 1.0
    flash_efficiency: float = 1.0
    hbm_efficiency: float = 1.0
    intra_node_efficiency: float = 1.0
    inter_node_efficiency: float = 1.0
    norm_bytes: float = 0.0
    mlp_bytes: float = 0.0
    score_bytes: float = 0.0
    logits_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    layer_launch_s: float = 0.0
    logits_held_bytes: float = 0.0
    dp_overlap: float = 0.0
    device_context_bytes: float = 0.0

    def __post_init__(self) -> None:
        checks = _Checks("costs")
        checks.choice(CostKind, kind=self.kind)
        efficiencies = [name for name in self.__slots__ if name.endswith("_efficiency")]
        checks.positive(**{name: getattr(self, name) for name in efficiencies})
        checks.fraction(**{name: getattr(self, name) for name in efficiencies}, dp_overlap=self.dp_overlap)
        human = {"layer_launch_s": ("layer_launch_us", 1e6), "device_context_bytes": ("device_context_gb", 1e-9)}
        rest = [name for name in self.__slots__ if name not in (*efficiencies, *human, "kind", "dp_overlap")]
        checks.not_negative(**{name: getattr(self, name) for name in rest})
        checks.not_negative(**{key: getattr(self, name) * scale for name, (key, scale) in human.items()})
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One asked configuration: everything that decides a row."""

    model: ModelSpec
    cluster: ClusterSpec
    layout: ParallelLayout
    training: Training
    schedule: str
    options: tuple[tuple[str, int | float | str], ...] = ()
    """The schedule's own options that are set, such as ``group`` of interleaved_1f1b, by name."""
    costs: CostConstants = field(default_factory=lambda: CostConstants(kind="lecture"))


def divisors(n: int) -> Iterator[int]:
    """The divisors of ``n`` in rising order.

    >>> list(divisors(12))
    [1, 2, 3, 4, 6, 12]
    """
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    yield from small
    yield from (n // k for k in reversed(small) if k * k != n)


def nearest_divisors(n: int, wanted: int) -> str:
    """The divisors of ``n`` around ``wanted``, as an error message names them.

    >>> nearest_divisors(96, 5)
    '4 or 6'
    >>> nearest_divisors(96, 200)
    '96'
    """
    below = [k for k in divisors(n) if k <= wanted]
    above = [k for k in divisors(n) if k > wanted]
    return " or ".join(str(k) for k in below[-1:] + above[:1])
