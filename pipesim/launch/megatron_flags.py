"""The flags of Megatron-LM and of its DeepSpeed forks, as tables.

Sources: Megatron-LM core_v0.14, megatron/training/arguments.py; microsoft/Megatron-DeepSpeed and
bigscience-workshop/Megatron-DeepSpeed, megatron/arguments.py.
"""

from __future__ import annotations

import re

from pipesim.launch import megatron_stages
from pipesim.launch.rows import Row

SHAPE = (
    Row("--num-layers", "model.layers"),
    Row("--hidden-size", "model.hidden"),
    Row("--ffn-hidden-size", "model.ffn"),
    Row("--num-attention-heads", "model.heads"),
    Row("--kv-channels", "model.head_dim"),
)
ALIKE = (
    Row("--tensor-model-parallel-size", "parallel.t", absent=1),
    Row("--pipeline-model-parallel-size", "parallel.p", absent=1),
    Row("--micro-batch-size", "training.micro_batch"),
    Row("--global-batch-size", "training.global_batch"),
    Row("--seq-length", "training.seq_length"),
)

MODEL = (
    *SHAPE,
    Row("--num-query-groups", "model.kv_heads"),
    Row("--max-position-embeddings", "model.context"),
    Row("--swiglu", "model.gated", {True: True}, absent=False),
    Row("--disable-bias-linear", "model.bias", {False: True}, absent=True),
    Row("--untie-embeddings-and-output-weights", "model.tied_embeddings", {False: True}, absent=True),
    Row("--position-embedding-type", "model.positions", {"learned": "learned_absolute", "rotary": "rope"}, absent="learned"),
    Row("--normalization", "model.norm", {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}, absent="layernorm"),
)  # fmt: skip
MLA = (
    Row("--q-lora-rank", "model.mla.query_rank"),
    Row("--kv-lora-rank", "model.mla.kv_rank", absent=32),
    Row("--qk-head-dim", "model.mla.nope_head_dim", absent=128),
    Row("--qk-pos-emb-head-dim", "model.mla.rope_head_dim", absent=64),
    Row("--v-head-dim", "model.mla.value_head_dim", absent=128),
)
MOE = (
    Row("--num-experts", "model.moe.experts"),
    Row("--moe-router-topk", "model.moe.top_k", absent=2),
    Row("--moe-ffn-hidden-size", "model.moe.ffn"),
    Row("--moe-router-enable-expert-bias", "model.moe.router_bias", {True: True}, absent=False),
    Row("--moe-router-num-groups", "model.moe.groups", absent=1),
    Row("--moe-router-group-topk", "model.moe.group_limit", absent=1),
)
CONTEXT = {"ring": "p2p", "all_gather": "all_gather", "ulysses": "a2a"}

PARALLEL = (
    *ALIKE[:2],
    Row("--context-parallel-size", "parallel.c", absent=1),
    Row("--expert-model-parallel-size", "parallel.e", absent=1),
    Row("--sequence-parallel", "parallel.sequence_parallel", {True: True}, absent=False),
    Row("--cp-comm-type", "parallel.context", CONTEXT, absent="ring"),
    Row("--use-tp-pp-dp-mapping", "parallel.rank_order", {"tcpd": True}, absent="tcdp"),
    Row("--data-parallel-sharding-strategy", "parallel.zero", {2: "optim_grads", 3: "optim_grads_params"}, absent=0),
    Row("--use-distributed-optimizer", "parallel.zero", {1: True}, absent=0),
    Row("--microbatch-group-size-per-virtual-pipeline-stage", "schedule.group", absent=None),
)
TRAINING = (
    *ALIKE[2:],
    Row("--fp8-format", "training.precision", {"fp8": "hybrid"}),
    Row("--fp16", "training.precision", {"fp16": True}),
    Row("--bf16", "training.precision", {"bf16": True}),
    Row("--attention-backend", "training.attention", {"flash": "flash", "unfused": "unfused"}),
)

DEEPSPEED_MODEL = (
    *SHAPE,
    Row("--num-key-value-heads", "model.kv_heads"),
    *MODEL[6:10],
    Row("--use-rotary-position-embeddings", "model.positions", {"rotary": True}, absent="learned"),
    Row("--normalization", "model.norm", {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}, absent="layernorm"),
)
BIGSCIENCE_MODEL = (
    *SHAPE,
    MODEL[6],
    Row("--position-embedding-type", "model.positions", {"learned": "absolute", "alibi": "alibi"}, absent="learned"),
    Row("--embed-layernorm", "model.embedding_norm", {True: True}, absent=False),
    Row("--pad-vocab-size-to", "model.vocab"),
)
DEEPSPEED_TRAINING = (
    *ALIKE[2:],
    Row("--fp16", "training.precision", {"fp16": True}),
    Row("--bf16", "training.precision", {"bf16": True}),
    Row("--use-flash-attn-v2", "training.attention", {"flash": True}, absent="unfused"),
    Row("--checkpoint-activations", "training.recompute", {"full": True}, absent="none"),
)
RECOMPUTE = ("--recompute-granularity", "--recompute-method", "--recompute-num-layers", "--recompute-activations")
DROPOUT = ("--attention-dropout", "--hidden-dropout")
OTHER_WORDS = {
    "--attention-backend": {"auto": "flash", "fused": "flash", "local": "unfused"},
    "--fp8-format": {"e4m3": "hybrid"},
}
"""Words of Megatron's that we tell nothing apart from -> the one that is."""

NOT_OURS = re.compile(
    "--("
    "lr|lr-.*|min-lr|weight-decay.*|start-weight-decay|end-weight-decay|clip-grad|adam-.*|optimizer|decoupled-.*|"
    "train-.*|valid-.*|test-.*|eval-.*|log-.*|tensorboard-.*|wandb-.*|timing-.*|one-logger.*|save.*|load|ckpt-.*|"
    "data-(path|args-path|cache-path|impl)|data-per-class.*|split|mock-data|tokenizer-.*|tiktoken-.*|vocab-file|merge-file|"
    "num-workers|num-dataset-builder-threads|dataloader-type|seed|data-parallel-random-init|init-method-.*|"
    "distributed-(backend|timeout-minutes)|exit-.*|no-(load|save)-.*|finetune|override-.*|use-checkpoint-.*|"
    "rotary-.*|no-rope-fusion|use-rope-scaling|rope-.*|mscale.*|norm-epsilon|layernorm-epsilon|qk-layernorm|"
    "apply-query-key-layer-scaling|no-query-key-layer-scaling|attention-softmax-in-fp32|no-position-embedding|"
    "moe-aux-loss-coeff|moe-z-loss-coeff|moe-router-(load-balancing-type|score-function|dtype|topk-scaling-factor|"
    "bias-update-rate|pre-softmax)|kill-switch-path|abort-on-unmet-fused-kernel-constraints|reset-.*|"
    "no-create-attention-mask-in-dataloader|eod-mask-loss|check-for-.*|rerun-mode|manual-gc.*|profile.*|use-pytorch-profiler|"
    "(initial-)?loss-scale.*|hysteresis|rampup-batch-size|no-check-for-nan-in-loss-and-grad|use-dist-ckpt|dist-ckpt-.*|"
    "async-save|enable-experimental|calculate-per-token-loss|"
    # of torchrun, srun and deepspeed
    "nnodes|nproc-per-node|node-rank|master-(addr|port)|rdzv-.*|max-restarts|tee|local-rank|redirects|log-dir|hostfile|"
    "num-(nodes|gpus)|include|exclude|wait|kill-on-bad-exit|jobid|deepspeed-config|deepspeed"
    ")"
)
"""What does not concern the layout, its time or its memory."""

BY_STACK = re.compile(
    "--("
    "overlap-.*|no-overlap-.*|tp-comm-overlap.*|.*-fusion|use-fused-.*|moe-(grouped-gemm|token-dispatcher-type|permute-fusion|"
    "flex-dispatcher-backend|enable-deepep|shared-expert-overlap)|accumulate-allreduce-grads-in-fp32|grad-reduce-in-bf16|"
    "use-mcore-models|use-legacy-models|transformer-impl|cuda-graph-.*|enable-cuda-graph|external-cuda-graph|te-rng-tracker|"
    "main-(grads|params)-dtype|exp-avg-(sq-)?dtype|use-precision-aware-optimizer|ddp-.*|no-align-.*|align-.*|delay-wgrad-compute|"
    "no-async-tensor-model-parallel-allreduce|no-persist-layer-norm|no-scatter-gather-tensors-in-pipeline|fp8-.*|"
    "deepspeed-activation-checkpointing|use-cpu-initialization|fsdp-.*|calculate-.*|use-nccl-ub|nccl-.*|"
    "no-contiguous-buffers-in-local-ddp|empty-unused-memory-level|high-priority-stream-groups"
    ")"
)
"""What the stack's measured constants stand for."""

BESIDE = {
    *megatron_stages.FLAGS, *RECOMPUTE, *DROPOUT, "--group-query-attention", "--multi-latent-attention", "--vocab-size",
    "--make-vocab-size-divisible-by", "--padded-vocab-size", "--moe-layer-freq", "--moe-shared-expert-intermediate-size",
    "--num-distributed-optimizer-instances", "--use-megatron-fsdp", "--use-rotary-position-embeddings", "--use-flash-attn",
    "--expert-tensor-parallel-size", "--zero-stage", "--pp-partition-method", "--no-pipeline-parallel", "--use-flash-attn-v1",
}  # fmt: skip
"""Read by themselves, not by a table."""
