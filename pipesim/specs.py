"""What is asked: model, cluster, layout, training and cost constants. Frozen, in SI units, checked when made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipesim.checks import MAX_INT, Checks, nearest_divisors, suggest
from pipesim.stack_spec import CostConstants as CostConstants
from pipesim.stack_spec import CostKind as CostKind
from pipesim.stack_spec import FlopConvention as FlopConvention
from pipesim.stack_spec import StackSpec as StackSpec

MAX_LAYERS = 100_000
"""More layers are refused: each is placed on a stage."""

PARTITIONS = (
    "balanced, even, a list of units per stage or a layout such as Ett|tt|ttL (experiment=partition finds the best)"
)

Precision = Literal["bf16", "fp16", "fp8"]
Recompute = Literal["none", "selective", "operators", "full"]
Attention = Literal["torch", "unfused", "flash1", "flash", "flash3"]
ContextParallel = Literal["ring", "all_gather", "ulysses"]
SpreadVocab = Literal["none", "algorithm_1", "algorithm_2", "interlaced"]
Positions = Literal["learned", "rotary", "alibi"]
Norm = Literal["layernorm", "rmsnorm"]


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
        checks = Checks("model.mla")
        checks.whole(**{name: getattr(self, name) for name in self.__slots__})
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of experts: ``top_k`` of ``experts`` routed gated MLPs of width ``ffn`` for each token, plus shared ones.

    The first ``dense_layers`` layers keep the model's dense MLP. Experts of one token lie in ``group_limit`` at most of
    ``groups`` equal groups of neighbours.
    """

    experts: int
    top_k: int
    ffn: int
    shared_experts: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    groups: int = 1
    group_limit: int = 1

    def __post_init__(self) -> None:
        checks = Checks("model.moe")
        checks.whole(experts=self.experts, top_k=self.top_k, ffn=self.ffn)
        checks.whole(groups=self.groups, group_limit=self.group_limit)
        checks.whole(low=0, shared_experts=self.shared_experts, dense_layers=self.dense_layers)
        checks.done()
        checks.rule(
            self.top_k <= self.experts, f"model.moe.top_k={self.top_k} exceeds model.moe.experts={self.experts}."
        )
        checks.rule(
            self.experts % self.groups == 0,
            f"model.moe.groups={self.groups} must divide model.moe.experts={self.experts}. "
            f"Nearest: {nearest_divisors(self.experts, self.groups)}.",
        )
        least = -(-self.top_k * self.groups // self.experts)
        checks.rule(
            least <= self.group_limit <= self.groups or least > self.groups,
            f"model.moe.group_limit={self.group_limit} must be {least} to model.moe.groups={self.groups}, for a token's "
            f"model.moe.top_k={self.top_k} experts. Nearest: {min(max(self.group_limit, least), self.groups)}.",
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
        checks = Checks("model")
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

    @property
    def dense_layers(self) -> int:
        """Layers without experts; they come first."""
        return self.layers if self.moe is None else self.moe.dense_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One direction of a link as one GPU sees it: peak bytes per second and seconds per message."""

    bandwidth_bytes_per_s: float
    latency_s: float


def slowest_link(links: Sequence[LinkSpec]) -> LinkSpec:
    """What messages get that take any of them."""
    return LinkSpec(
        bandwidth_bytes_per_s=min(each.bandwidth_bytes_per_s for each in links),
        latency_s=max(each.latency_s for each in links),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPart:
    """Equal nodes of a cluster that has others too; ``cluster`` says what they are, whatever its own ``gpus``."""

    cluster: ClusterSpec
    nodes: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.cluster.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Equal nodes of equal GPUs, or ``parts`` of them. Bandwidths are peak, one direction.

    ``peak_flops_per_s`` is dense (no sparsity) for one GPU, by precision; a precision that is missing has no
    tensor-core path on this GPU. ``multiprocessors`` work on one output tile each. ``flash_efficiency`` is what a causal
    flash-attention forward reaches of the peak, by kernel. ``intra_node`` is one GPU's link to the others of its node,
    ``inter_node`` one whole node's network; rings of as many ranks as n nodes have GPUs get
    (n / ``network_flat_nodes``) ** -``network_decay`` of it where n is larger. ``watts_per_gpu`` is the board's limit and
    ``usd_per_gpu_hour`` a price of the user's; no time depends on them.

    Global ranks are numbered node after node through the ``parts``, whose nodes reach those of other parts over ``between``,
    one whole node's share; what a cluster of parts says of its GPUs is what all of them can (``cluster_parts.joined``).
    ``links`` are what groups of a dimension get that lie on several parts: inside a node and between nodes. They are for
    pricing what one part runs, see ``estimate.sites``.
    """

    name: str
    chip: str
    gpus: int
    gpus_per_node: int
    peak_flops_per_s: Mapping[Precision, float] = field(hash=False)
    multiprocessors: int
    flash_efficiency: Mapping[str, float] = field(hash=False)
    memory_bytes: float
    hbm_bytes_per_s: float
    intra_node: LinkSpec
    inter_node: LinkSpec
    network_decay: float = 0.0
    network_flat_nodes: float = 1.0
    watts_per_gpu: float | None = None
    usd_per_gpu_hour: float | None = None
    parts: tuple[ClusterPart, ...] = ()
    between: LinkSpec | None = None
    links: Mapping[str, tuple[LinkSpec, LinkSpec]] = field(default_factory=dict, hash=False)
    source: str = ""

    def __post_init__(self) -> None:
        checks = Checks("cluster")
        checks.whole(gpus=self.gpus, gpus_per_node=self.gpus_per_node, multiprocessors=self.multiprocessors)
        checks.fraction(**{f"flash_efficiency.{kernel}": value for kernel, value in self.flash_efficiency.items()})
        checks.not_negative(network_decay=self.network_decay)
        checks.positive(network_flat_nodes=self.network_flat_nodes)
        worth = {"watts_per_gpu": self.watts_per_gpu, "usd_per_gpu_hour": self.usd_per_gpu_hour}
        checks.positive(**{name: value for name, value in worth.items() if value is not None})
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
    of each of the p*v stages in order. ``shard`` data ranks share what ZeRO divides (None: all d c of them).
    ``rank_order`` says how global ranks are numbered, innermost degree first; the ranks of e are neighbours among those of c
    and d. ``spread_vocab`` divides embedding and head
    over all pipeline ranks (Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024).
    """

    t: int = 1
    p: int = 1
    d: int | None = None
    c: int = 1
    e: int = 1
    v: int | None = None
    zero: int = 0
    shard: int | None = None
    sequence_parallel: bool = False
    context: ContextParallel = "ring"
    rank_order: str = "tcdp"
    spread_vocab: SpreadVocab = "none"
    partition: Literal["balanced", "even"] | tuple[int, ...] = "balanced"

    def __post_init__(self) -> None:
        checks = Checks("parallel")
        checks.whole(t=self.t, p=self.p, d=self.d, c=self.c, e=self.e, v=self.v, shard=self.shard)
        checks.choice(ContextParallel, context=self.context)
        checks.choice(SpreadVocab, spread_vocab=self.spread_vocab)
        checks.rule(
            sorted(self.rank_order) == sorted("tcdp"),
            f"parallel.rank_order={self.rank_order!r} must hold each of t, c, d, p once. Nearest: tcdp.",
        )
        checks.rule(
            isinstance(self.zero, int) and 0 <= self.zero <= 3, f"parallel.zero={self.zero} must be 0, 1, 2 or 3."
        )
        if isinstance(self.partition, str):
            checks.rule(
                self.partition in ("balanced", "even"),
                f"parallel.partition={self.partition!r} must be {PARTITIONS}.{suggest(self.partition, ('balanced', 'even'))}",
            )
        else:
            for units in self.partition:
                checks.whole(low=0, partition=units)
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One step: batch sizes in sequences, ``seq_length`` in tokens (``None`` takes the model's context), the recipe.

    ``recompute_layers`` of each stage run again backward (None: all of them), first ones first. ``optimizer_barrier``:
    every rank waits for the slowest before the weights change; without it (Qi et al., "Zero Bubble", 2024, section 4)
    steps follow each other as fast as the longest rank allows.
    """

    micro_batch: int
    global_batch: int
    seq_length: int | None = None
    precision: Precision = "bf16"
    recompute: Recompute = "none"
    recompute_layers: int | tuple[int, ...] | None = None
    attention: Attention = "flash"
    dropout: bool = False
    optimizer_barrier: bool = True

    def __post_init__(self) -> None:
        checks = Checks("training")
        checks.whole(micro_batch=self.micro_batch, global_batch=self.global_batch, seq_length=self.seq_length)
        again = self.recompute_layers
        for layers in again if isinstance(again, tuple) else (again,):
            checks.whole(low=0, recompute_layers=layers)
        checks.choice(Precision, precision=self.precision)
        checks.choice(Recompute, recompute=self.recompute)
        checks.choice(Attention, attention=self.attention)
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
    stack: StackSpec = field(default_factory=lambda: StackSpec(name="ideal", gemm_efficiency={"default": 1.0}))
