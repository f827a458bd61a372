#!/usr/bin/env bash
# Megatron-LM: llama3_405b, t8 p16 d128 v4, micro-batch 1 of 2048
# Start it on every node k = 0 … 2047: NODE_RANK=k MASTER_ADDR=FIRST_NODE bash THIS_FILE; under Slurm:
# srun --nodes 2048 --ntasks-per-node 1 bash -c 'MASTER_ADDR=$(scontrol show hostnames | head -n 1) NODE_RANK=$SLURM_NODEID bash THIS_FILE'
# Note: no key says the rotary base, so that the framework's --rotary-base 10000 stands; Llama 3 needs --rotary-base 500000.
# Note: --vocab-size 128255 is one less than model.vocab=128256, for NullTokenizer adds one; with a tokenizer of your own leave both out.
# Note: it ends after --train-iters 20 and saves nothing: give --train-iters, --save and --load behind the script's name, where the last of equal flags counts.
set -euo pipefail
MEGATRON=${MEGATRON:-.}  # its checkout
NNODES=${NNODES:-2048}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL_ARGS=(
    --group-query-attention
    --num-layers 126
    --hidden-size 16384
    --ffn-hidden-size 53248
    --num-attention-heads 128
    --kv-channels 128
    --num-query-groups 8
    --max-position-embeddings 8192
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --position-embedding-type rope
    --normalization RMSNorm
)

VOCABULARY_ARGS=(
    --mock-data
    --tokenizer-type NullTokenizer
    --vocab-size 128255
    --make-vocab-size-divisible-by 32
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16
    --sequence-parallel
    --use-distributed-optimizer
    --num-virtual-stages-per-pipeline-rank 4
    --account-for-embedding-in-pipeline-split
    --account-for-loss-in-pipeline-split
    --overlap-grad-reduce
    --overlap-param-gather
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 2048
    --seq-length 8192
    --bf16
    --attention-backend flash
    --attention-dropout 0.0
    --hidden-dropout 0.0
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
