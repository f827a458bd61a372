#!/usr/bin/env bash
# Megatron-DeepSpeed: bloom_176b, t4 p12 d8, micro-batch 2 of 2048
# Start it on every node k = 0 … 47: NODE_RANK=k MASTER_ADDR=FIRST_NODE bash THIS_FILE; under Slurm:
# srun --nodes 48 --ntasks-per-node 1 bash -c 'MASTER_ADDR=$(scontrol show hostnames | head -n 1) NODE_RANK=$SLURM_NODEID bash THIS_FILE'
# Note: the flags are those of bigscience-workshop/Megatron-DeepSpeed.
# Note: this fork has no random data: give --data-path and a tokenizer behind the script's name.
set -euo pipefail
MEGATRON_DEEPSPEED=${MEGATRON_DEEPSPEED:-.}  # its checkout
NNODES=${NNODES:-48}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL_ARGS=(
    --num-layers 70
    --hidden-size 14336
    --ffn-hidden-size 57344
    --num-attention-heads 112
    --kv-channels 128
    --max-position-embeddings 2048
    --position-embedding-type alibi
    --embed-layernorm
    --pad-vocab-size-to 250880
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 4
    --pipeline-model-parallel-size 12
    --pp-partition-method 'type:transformer|embedding'
    --zero-stage 0
)

TRAINING_ARGS=(
    --micro-batch-size 2
    --global-batch-size 2048
    --seq-length 2048
    --bf16
    --checkpoint-activations
    --attention-dropout 0.0
    --hidden-dropout 0.0
)

DEEPSPEED_ARGS=(
    --deepspeed
    --deepspeed_config ds_config.json
    --deepspeed-activation-checkpointing
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
    "$MEGATRON_DEEPSPEED/pretrain_gpt.py" \
    "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${DEEPSPEED_ARGS[@]}" "${RUN_ARGS[@]}" "$@"
