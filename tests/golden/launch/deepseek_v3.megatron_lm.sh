#!/usr/bin/env bash
# Megatron-LM: deepseek_v3, t1 p16 d128 e64, micro-batch 1 of 15360
# Start it on every node k = 0 … 255: NODE_RANK=k MASTER_ADDR=FIRST_NODE bash THIS_FILE; under Slurm:
# srun --nodes 256 --ntasks-per-node 1 bash -c 'MASTER_ADDR=$(scontrol show hostnames | head -n 1) NODE_RANK=$SLURM_NODEID bash THIS_FILE'
# Note: no key says the rotary base, so that the framework's --rotary-base 10000 stands; Llama 3 needs --rotary-base 500000.
# Note: --vocab-size 129279 is one less than model.vocab=129280, for NullTokenizer adds one; with a tokenizer of your own leave both out.
# Note: it ends after --train-iters 20 and saves nothing: give --train-iters, --save and --load behind the script's name, where the last of equal flags counts.
set -euo pipefail
MEGATRON=${MEGATRON:-.}  # its checkout
NNODES=${NNODES:-256}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}

MODEL_ARGS=(
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --max-position-embeddings 4096
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --position-embedding-type rope
    --normalization RMSNorm
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --num-experts 256
    --moe-router-topk 8
    --moe-ffn-hidden-size 2048
    --moe-router-enable-expert-bias
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-router-score-function sigmoid
    --moe-shared-expert-intermediate-size 2048
    --moe-layer-freq '([0]*3+[1]*58)'
    --moe-token-dispatcher-type alltoall
)

VOCABULARY_ARGS=(
    --mock-data
    --tokenizer-type NullTokenizer
    --vocab-size 129279
    --make-vocab-size-divisible-by 128
)

PARALLEL_ARGS=(
    --pipeline-model-parallel-size 16
    --expert-model-parallel-size 64
    --use-distributed-optimizer
    --pipeline-model-parallel-layout 'Ettt|(t*4|)*7ttt|(t*4|)*6tttL'
    --overlap-grad-reduce
    --overlap-param-gather
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 15360
    --seq-length 4096
    --fp8-format hybrid
    --attention-backend flash
    --recompute-granularity selective
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --bf16
)

RUN_ARGS=(
    --train-iters 20
    --lr 1.0e-4
    --min-lr 1.0e-5
    --lr-warmup-iters 2
    --eval-iters 0
    --log-interval 1
)

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
    "$MEGATRON/pretrain_gpt.py" \
    "${MODEL_ARGS[@]}" "${VOCABULARY_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${RUN_ARGS[@]}" "$@"
