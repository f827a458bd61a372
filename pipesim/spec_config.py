"""The schemas of ``conf/model/``, ``cluster/``, ``parallel/``, ``training/``, ``schedule/``, ``stack/`` and ``costs/``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class MlaConf:
    query_rank: int = MISSING
    kv_rank: int = MISSING
    nope_head_dim: int = MISSING
    rope_head_dim: int = MISSING
    value_head_dim: int = MISSING


@dataclass
class MoeConf:
    experts: int = MISSING
    top_k: int = MISSING
    ffn: int = MISSING
    shared_experts: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    groups: int = 1
    group_limit: int = 1


@dataclass
class ModelConf:
    """``kv_heads``, ``head_dim`` and ``ffn`` left null take ``heads``, ``hidden / heads`` and ``4 * hidden``."""

    name: str = MISSING
    layers: int = MISSING
    hidden: int = MISSING
    heads: int = MISSING
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    vocab: int = MISSING
    context: int = MISSING
    gated: bool = False
    bias: bool = True
    tied_embeddings: bool = True
    embedding_norm: bool = False
    final_norm: bool = True
    positions: str = "learned"
    norm: str = "layernorm"
    mla: MlaConf | None = None
    moe: MoeConf | None = None
    source: str = ""


@dataclass
class PartConf:
    """``cluster`` is a file of ``conf/cluster/`` by its name, or spelt out; of it so many nodes."""

    cluster: Any = MISSING
    nodes: int = MISSING


@dataclass
class ClusterConf:
    """Peaks are dense, bandwidths one direction; the network's is for a whole node. ``watts_per_gpu`` is the board's limit.

    Either the nodes are equal, and every key up to ``inter_node_latency_us`` must be given, or the cluster has ``parts``
    that say all this, and ``between`` them a network.
    """

    name: str = MISSING
    chip: str | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    peak_tflops: dict[str, float] | None = None
    multiprocessors: int | None = None
    flash_efficiency: dict[str, float] | None = None
    memory_gb: float | None = None
    hbm_gb_per_s: float | None = None
    intra_node_gb_per_s: float | None = None
    intra_node_latency_us: float | None = None
    inter_node_gb_per_s: float | None = None
    inter_node_latency_us: float | None = None
    network_decay: float = 0.0
    network_flat_nodes: float = 1.0
    watts_per_gpu: float | None = None
    usd_per_gpu_hour: float | None = None
    parts: list[PartConf] = field(default_factory=list)
    between_gb_per_s: float | None = None
    between_latency_us: float | None = None
    source: str = ""


@dataclass
class ParallelConf:
    """``d`` left null takes every GPU, ``v`` as many stages per rank as the schedule is made for.

    ``partition`` is balanced, even, a list of units per stage or a layout string of Megatron-LM's.
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
    context: str = "ring"
    rank_order: str = "tcdp"
    spread_vocab: str = "none"
    partition: Any = "balanced"


@dataclass
class TrainingConf:
    micro_batch: int = MISSING
    global_batch: int = MISSING
    seq_length: int | None = None
    precision: str = "bf16"
    recompute: str = "none"
    recompute_layers: Any = None
    attention: str = "flash"
    dropout: bool = False
    optimizer_barrier: bool = True


@dataclass
class ScheduleConf:
    """``name`` or one of its aliases; the options belong to some schedules and are refused by the others."""

    name: str = MISSING
    group: int | None = None
    segments: int | None = None
    max_inflight: float | None = None
    path: str | None = None
    kept_for_weights: float | None = None
    objective: str | None = None


@dataclass
class StackConf:
    """Units as in ``specs.StackSpec``, but times in µs and ms and the device context in GB."""

    name: str = MISSING
    based_on: str = ""
    framework: str | None = None
    gemm_efficiency: dict[str, float] = MISSING
    fp8_efficiency: float = 1.0
    fp8_cast_bytes: float = 4.0
    fp8_gathers: bool = False
    fp8_dispatch: bool = False
    relayed_dispatch: bool = False
    forward_launch_us: float = 0.0
    backward_launch_us: float = 0.0
    synchronous: bool = False
    spanning_launch_us: float = 0.0
    spanning_rank_launch_us: float = 0.0
    norm_bytes: float = 0.0
    mlp_bytes: float = 0.0
    logits_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    tp_overlap: float = 0.0
    dp_overlap: float = 0.0
    gather_overlap: float = 0.0
    gather_interference: float = 0.0
    blocking_hops: bool = True
    hop_start_us: float = 0.0
    step_ms: float = 0.0
    gradient_bytes: int = 4
    accumulation_bytes: float = 0.0
    reduce_bytes: int = 4
    reduces_whole: bool = False
    activation_scale: float = 1.0
    norm_kept_bytes: float = 4.0
    gathered_kept_bytes: float = 0.0
    logits_held_bytes: float = 0.0
    logits_gathered: bool = False
    logits_shared_bytes: float = 0.0
    fsdp: bool = False
    fp8_copies: bool = False
    device_context_gb: float = 0.0
    slack: float = 0.0
    own_runs: dict[str, int] = field(default_factory=dict)
    own_reasons: tuple[str, ...] = ()
    source: str = ""


@dataclass
class CostsConf:
    """Units as in ``specs.CostConstants``, but the start of a collective in µs."""

    kind: str = MISSING
    flops: str | None = None
    gemm_inner_half_dim: float = 0.0
    unfused_efficiency: float = 1.0
    hbm_efficiency: float = 1.0
    intra_node_efficiency: float = 1.0
    inter_node_efficiency: float = 1.0
    collective_start_us: float = 0.0
    torch_score_bytes: float = 0.0
    unfused_score_bytes: float = 0.0
    source: str = ""
