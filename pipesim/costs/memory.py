"""Bytes that one rank holds: model states by ZeRO stage, and activations by what the backward needs again."""

from __future__ import annotations

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.kernels import FLASH_KERNELS
from pipesim.costs.matrices import head_dims, key_value_width
from pipesim.specs import ModelSpec, SpreadVocab, StackSpec

ELEMENT_BYTES = 2
"""Weights and activations are held in bf16 or fp16, and products write gradients of both so."""

OPTIMIZER_BYTES = 12
"""Adam in mixed precision, per parameter: fp32 master weight, first and second moment.
Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 3.1.
"""

MASTER_BYTES = 4
"""Of these the fp32 weight."""

NARROW_BYTES = 1
"""fp8. Source: NVIDIA, Transformer Engine user guide, "Using FP8": each matrix keeps its input in fp8 for the weight's
gradient, and of its weights, beside the 16-bit ones, an fp8 copy and its transpose.
"""


def state_bytes(
    parameters: Number, shards: Number, zero: int, gradient_bytes: int, fsdp: bool = False
) -> dict[str, Number]:
    """Weights, gradients and optimizer state of one rank's parameters, divided over ``shards`` as the ZeRO stage says.

    Stage 1 divides the optimizer state, 2 the gradients too, 3 the weights too.
    Source: Rajbhandari et al. 2020, section 5. PyTorch's FSDP (``fsdp``) divides the fp32 weights, which are the master
    copy too, and casts what it gathers. Source: Zhao et al., "PyTorch FSDP", VLDB 2023, section 4.4.
    """
    if fsdp and zero >= 3:
        weights = {"weights": parameters * MASTER_BYTES / shards}
        rest = {"optimizer": parameters * (OPTIMIZER_BYTES - MASTER_BYTES) / shards}
        return weights | {"gradients": parameters * gradient_bytes / shards} | rest
    return {
        "weights": parameters * ELEMENT_BYTES / (shards if zero >= 3 else 1),
        "gradients": parameters * gradient_bytes / (shards if zero >= 2 else 1),
        "optimizer": parameters * OPTIMIZER_BYTES / (shards if zero >= 1 else 1),
    }


def layer_activation_bytes(model: ModelSpec, cut: Cut, stack: StackSpec, *, moe: bool) -> Number:
    """What one layer keeps of one micro-batch without any recomputation, counting saved tensors.

    For a GPT layer with dropout masks and unfused attention this is s b h (10 + 24/t + 5 a s / (h t)), with sequence
    parallelism everything over t. Source: Korthikanti et al. 2022, equations 1 to 4. ``norm_kept_bytes`` of the 10 are
    what the two norms keep, more where they run unfused in fp32.
    """
    norms = stack.norm_kept_bytes - 2 * (ELEMENT_BYTES - _input_bytes(cut, stack))
    whole = model.hidden * (2 * ELEMENT_BYTES + norms + (2 if cut.dropout else 0))
    saved = whole / cut.norm_share + _products_saved(model, cut, stack, moe=moe) + _gathered_saved(model, cut, stack)
    return stack.activation_scale * cut.tokens * saved + attention_score_bytes(model, cut)


def _gathered_saved(model: ModelSpec, cut: Cut, stack: StackSpec) -> Number:
    """Bytes per token of a matrix input that sequence parallelism gathered and that every tensor rank keeps whole."""
    gathers = np.logical_and(np.greater(cut.t, 1), np.equal(cut.p, 1)) * cut.sequence_parallel
    return stack.gathered_kept_bytes * model.hidden * gathers


def attention_score_bytes(model: ModelSpec, cut: Cut) -> Number:
    """Softmax output of every score (and dropout's mask and output), also in fp32 where no kernel fuses them; flash
    attention keeps none.
    """
    if cut.attention in FLASH_KERNELS:
        return 0.0
    each = ELEMENT_BYTES + (ELEMENT_BYTES + 1 if cut.dropout else 0) + (4 if cut.attention == "torch" else 0)
    return each * cut.tokens * cut.seq_length * model.heads / cut.t


def recomputed_layer_bytes(model: ModelSpec, cut: Cut, stack: StackSpec, *, moe: bool) -> Number:
    """What a layer that runs again keeps: its input, or all but the scores (selective), or also half of the matrix
    products and attention's output (operators; torchtitan's per-operator checkpointing).
    """
    checkpoint = cut.tokens * model.hidden * ELEMENT_BYTES / cut.norm_share
    if cut.recompute == "full":
        return checkpoint
    if cut.recompute == "operators":
        return checkpoint + stack.activation_scale * cut.tokens * _products_saved(model, cut, stack, moe=moe) / 2
    return layer_activation_bytes(model, cut, stack, moe=moe) - attention_score_bytes(model, cut)


def context_bytes(model: ModelSpec, cut: Cut) -> Number:
    """What context parallelism holds beside while one layer runs, in 16 bits; nothing where c is 1.

    A ring: keys and values of every step and each step's output until all are put together, or backward twice keys, values
    and their gradients, at work and arriving. A gather: keys and values of the whole sequence, and their gradients.
    Source: NVIDIA, Transformer Engine 2.8, attention/dot_product_attention/context_parallel.py.
    """
    _, value_dim = head_dims(model)
    passed, output = key_value_width(model, cut.t), model.heads / cut.t * value_dim
    held = {
        "ring": np.maximum(cut.c * (passed + output), 4 * passed), "all_gather": 2 * cut.c * passed, "ulysses": 0.0,
    }[cut.context]  # fmt: skip
    return ELEMENT_BYTES * cut.tokens * np.where(np.asarray(cut.c) > 1, held, 0.0)


def logits_bytes(model: ModelSpec, cut: Cut, stack: StackSpec) -> Number:
    """Logits, their softmax and their gradient of one micro-batch, on the stage with the head."""
    if stack.logits_gathered:
        return stack.logits_held_bytes * cut.tokens * model.vocab
    each = stack.logits_held_bytes + stack.logits_shared_bytes * np.greater(cut.t, 1)
    return each * cut.tokens * model.vocab / cut.t


def head_bytes(model: ModelSpec, cut: Cut, stack: StackSpec, share: Number, spread: SpreadVocab) -> Number:
    """Logits on a stage that holds ``share`` of the head; if it is spread, what its passes keep beside them too.

    The pass S holds logits in 16 bits and twice in fp32, before and after their maximum is taken away. Half of what they
    take otherwise (their softmax) stays for every micro-batch that waits between S and T. All ranks hold the last layer's
    output of those and of the one at work, and their own part, before all are summed, of the embeddings, of the
    embeddings' gradient and of the last output's; the gradients of both tables are tensors of their own.
    Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, sections 4 and 5.
    """
    logits = share * logits_bytes(model, cut, stack)
    if spread == "none":
        return logits
    waiting = {"algorithm_1": 2, "algorithm_2": 1, "interlaced": 0}[spread]
    shifted = max(1.0, (ELEMENT_BYTES + 2 * 4) / stack.logits_held_bytes) if stack.logits_held_bytes else 0.0
    parts = (1 + waiting + 3) * cut.tokens * model.hidden * ELEMENT_BYTES / cut.norm_share
    tables = 2 * ELEMENT_BYTES * share * model.vocab * model.hidden / cut.t
    return logits * (shifted + waiting / 2) + parts + tables


def narrow_copies(cut: Cut, stack: StackSpec) -> bool:
    """Whether matrices keep their weights and inputs in fp8 too."""
    return cut.precision == "fp8" and stack.fp8_copies


def gathered_element_bytes(cut: Cut, stack: StackSpec) -> int:
    """Of an element that ranks gather to multiply it: sequence parallelism's activations, the weights that ZeRO divides."""
    return NARROW_BYTES if cut.precision == "fp8" and stack.fp8_gathers else ELEMENT_BYTES


def _input_bytes(cut: Cut, stack: StackSpec) -> int:
    """Bytes of an element of what a matrix multiplies."""
    return NARROW_BYTES if narrow_copies(cut, stack) else ELEMENT_BYTES


def _products_saved(model: ModelSpec, cut: Cut, stack: StackSpec, *, moe: bool) -> Number:
    """Bytes per token of what lies between a layer's matrices; tensor ranks share all but latents and experts' inputs."""
    narrow, whole = _input_bytes(cut, stack), 0
    if model.mla is not None:
        whole += model.mla.query_rank + model.mla.kv_rank
    if moe and model.moe is not None:
        whole += model.moe.top_k * model.hidden
    return narrow * whole + (_attention_saved(model, narrow) + _mlp_saved(model, narrow, moe=moe)) / cut.t


def _attention_saved(model: ModelSpec, narrow: int) -> Number:
    """Queries, keys, values and attention's output; the output matrix's input is that itself, or a narrow copy."""
    key_dim, value_dim = head_dims(model)
    kv_heads = model.heads if model.mla else model.kv_heads
    copy = narrow * model.heads * value_dim if narrow < ELEMENT_BYTES else 0
    return ELEMENT_BYTES * (model.heads * (key_dim + value_dim) + kv_heads * (key_dim + value_dim)) + copy


def _mlp_saved(model: ModelSpec, narrow: int, *, moe: bool) -> Number:
    """The activation function's input (two when gated) and the down matrix's input, of every expert a token passes."""
    width: Number = model.ffn
    if moe and model.moe is not None:
        width = model.moe.ffn * (model.moe.top_k + model.moe.shared_experts)
    return width * (ELEMENT_BYTES * (2 if model.gated else 1) + narrow)
