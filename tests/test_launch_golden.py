"""The arguments of four published set-ups, word for word: ``golden/launch`` holds them as they were looked through."""

from __future__ import annotations

from pathlib import Path

import pytest
from points import point

from pipesim import launch

GOLDEN = Path(__file__).parent / "golden" / "launch"

BLOOM = ()
LLAMA_405B = (
    "model=llama3_405b", "cluster=dgx_h100", "cluster.gpus=16384", "parallel=megatron", "parallel.p=16", "parallel.v=4",
    "training=megatron", "training.global_batch=2048", "training.recompute=none", "schedule=interleaved_1f1b",
    "stack=megatron_lm",
)  # fmt: skip
DEEPSEEK = (
    "model=deepseek_v3", "cluster=dgx_h100", "cluster.gpus=2048", "parallel.t=1", "parallel.p=16", "parallel.e=64",
    "training=megatron", "training.global_batch=15360", "training.precision=fp8", "training.recompute=selective",
    "stack=megatron_lm",
)  # fmt: skip
LLAMA_8B = (
    "model=llama3_8b", "cluster=dgx_a100", "cluster.gpus=64", "parallel=fsdp", "training=megatron", "training.micro_batch=1",
    "training.global_batch=64", "training.recompute=operators", "stack=torchtitan",
)  # fmt: skip
SETUPS = {
    "bloom_176b": BLOOM, "llama3_405b": LLAMA_405B, "deepseek_v3": DEEPSEEK, "llama3_8b": LLAMA_8B,
}  # fmt: skip
"""BigScience's tr11-176B-ml.slurm; Llama 3's section 3.3.2 (t 8, p 16, d 128, one layer less at either end); DeepSeek-V3's
section 3.2 (p 16, e 64) in Megatron-LM's words; torchtitan's llama3_8b.toml (64 A100)."""


@pytest.mark.parametrize("name", SETUPS)
def test_published_set_ups_are_written_word_for_word(name: str) -> None:
    for file, text in launch.write(point(*SETUPS[name])).items():
        assert (GOLDEN / f"{name}.{file}").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bloom_176b", (
            "--pp-partition-method 'type:transformer|embedding'", "--num-layers 70", "--hidden-size 14336", "--micro-batch-size 2",
            "--num-attention-heads 112", "--embed-layernorm", "--position-embedding-type alibi", "--checkpoint-activations",
            "--pad-vocab-size-to 250880", "--tensor-model-parallel-size 4", "--pipeline-model-parallel-size 12", "--zero-stage 0",
        )),
        ("llama3_405b", (
            "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split", "--num-query-groups 8",
            "--tensor-model-parallel-size 8", "--pipeline-model-parallel-size 16", "--sequence-parallel",
        )),
        ("deepseek_v3", (
            "--multi-latent-attention", "--expert-model-parallel-size 64", "--moe-layer-freq '([0]*3+[1]*58)'",
            "--fp8-format hybrid",
            "--pipeline-model-parallel-layout", "--moe-router-enable-expert-bias", "--moe-router-num-groups 8",
            "--moe-router-group-topk 4", "--moe-token-dispatcher-type alltoall",
        )),
        ("llama3_8b", (
            'name = "llama3"', 'flavor = "8B"', "local_batch_size = 1", "seq_len = 8192", "data_parallel_shard_degree = 64",
            'mode = "selective"', 'selective_ac_option = "op"',
        )),
    ],
)  # fmt: skip
def test_the_published_words_are_there(name: str, words: tuple[str, ...]) -> None:
    text = next(iter(launch.write(point(*SETUPS[name])).values()))
    assert [word for word in words if word not in text] == []


def test_relayed_tokens_are_asked_of_deepep_which_is_handed_16_bits() -> None:
    text = launch.write(point(*DEEPSEEK, relayed_dispatch=True, fp8_dispatch=True))["megatron_lm.sh"]
    assert "--moe-token-dispatcher-type flex" in text
    assert "--moe-enable-deepep" in text
    assert "stack.fp8_dispatch=true has no flag" in text
