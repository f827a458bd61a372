"""Small specs that several tests of the cost model share: a GPT, a cut of it, a cluster of eights, a stack without costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipesim.costs.cut import Cut
from pipesim.costs.stage import Stages, contents
from pipesim.specs import ClusterSpec, LinkSpec, ModelSpec, StackSpec


def gpt(**changes: Any) -> ModelSpec:
    values: dict[str, Any] = {
        "name": "gpt", "layers": 24, "hidden": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "ffn": 4 * 4096,
        "vocab": 51200, "context": 2048, "gated": False, "bias": True, "tied_embeddings": True, "embedding_norm": False,
        "final_norm": True, "positions": "learned", "norm": "layernorm",
    }  # fmt: skip
    return ModelSpec(**values | changes)


def cut(**changes: Any) -> Cut:
    """Nothing is divided: two sequences of 2048 tokens."""
    values: dict[str, Any] = {
        "t": 1, "d": 1, "c": 1, "e": 1, "micro_batch": 2, "seq_length": 2048, "zero": 0, "sequence_parallel": False,
        "recompute": "none", "attention": "unfused", "precision": "bf16", "dropout": False,
    }  # fmt: skip
    return Cut(**values | changes)


def cluster(**changes: Any) -> ClusterSpec:
    """Eight nodes of eight A100s."""
    values: dict[str, Any] = {
        "name": "eights", "chip": "a100_80g", "gpus": 64, "gpus_per_node": 8,
        "peak_flops_per_s": {"bf16": 312e12, "fp16": 312e12}, "multiprocessors": 108,
        "flash_efficiency": {"flash1": 0.4, "flash": 0.6}, "memory_bytes": 80e9, "hbm_bytes_per_s": 2e12,
        "intra_node": LinkSpec(bandwidth_bytes_per_s=300e9, latency_s=3e-6),
        "inter_node": LinkSpec(bandwidth_bytes_per_s=48e9, latency_s=14e-6),
    }  # fmt: skip
    return ClusterSpec(**values | changes)


def stack(**changes: Any) -> StackSpec:
    """The peak on every chip, nothing else takes time or room."""
    values: dict[str, Any] = {"name": "bare", "gemm_efficiency": {"default": 1.0}, "blocking_hops": False}
    return StackSpec(**values | changes)


def stages(model: ModelSpec, partition: tuple[int, ...], spread_vocab: bool = False) -> Stages:
    """What the stages of one point hold, shape (1, stages), each on a rank of its own."""
    dense = model.layers if model.moe is None else model.moe.dense_layers
    columns = np.array(contents(model.layers, dense, partition, spread_vocab)).T[:, None]
    return Stages(*columns, columns[0], np.ones_like(columns[0]))
