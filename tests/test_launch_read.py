"""Arguments as people have them: scripts with variables, files of models, published counts, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import composed

from pipesim.checks import Invalid
from pipesim.costs.parameters import total_parameters
from pipesim.launch import (
    hugging_face,
    megatron_deepspeed,
    megatron_reader,
    nanotron,
    reading,
    shell,
    torchtitan,
    torchtitan_reader,
)
from pipesim.launch.rows import Read
from pipesim.launch.values import point_of

BASE = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 4096 --seq-length 4096 "
BASE += "--micro-batch-size 2 --global-batch-size 16 --bf16 --vocab-size 32000 "


def flags(text: str) -> Read:
    return reading.read(BASE + text, "megatron_lm")[1]


BLOOM = r"""
TP_SIZE=4
PP_SIZE=12   # stages
NNODES=48
NHIDDEN=14336; NLAYERS=70
GPT_ARGS=" \
    --pp-partition-method 'type:transformer|embedding' \
    --num-layers $NLAYERS --hidden-size $NHIDDEN --num-attention-heads 112 \
    --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 \
    --rampup-batch-size 192 16 9_765_625 --global-batch-size 2048 \
    --embed-layernorm --bf16 --position-embedding-type alibi --checkpoint-activations \
    --pad-vocab-size-to 250880 --attention-dropout 0 --hidden-dropout 0 \
    "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $NNODES --rdzv_endpoint $MASTER_ADDR:6000"
export CMD=" \
    `pwd`/pretrain_gpt.py --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \
    $GPT_ARGS --save $CHECKPOINT_PATH --deepspeed --zero-stage 0 --deepspeed_config ds.json"
srun --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee log.txt
"""


def test_a_script_like_blooms_is_the_layout_that_bloom_had() -> None:
    form, found, _ = reading.read(BLOOM)
    assert (form, found.problems, found.unknown, found.gpus) == ("megatron_deepspeed", [], [], 384)
    at, bloom = point_of(found.values, composed()), composed()
    assert dataclasses.replace(at.model, name="", source="") == dataclasses.replace(bloom.model, name="", source="")
    layout = (at.layout.t, at.layout.p, at.layout.d, at.layout.zero, at.layout.partition)
    assert layout == (4, 12, 8, 1, (6,) * 12)
    assert at.training == bloom.training


def test_arrays_defaults_products_and_both_ways_to_give_a_value() -> None:
    script = """
    WIDTH=1024
    EXPERTS=${EXPERTS:-8}
    MOE=(--num-experts=$EXPERTS --moe-ffn-hidden-size $((WIDTH * 2)) --moe-layer-freq '([0]*1+[1]*31)')
    MOE+=(--moe-router-topk 2)
    torchrun --nnodes ${NODES} pretrain_gpt.py "${MOE[@]}" -v "$@"
    """
    found = {flag.name: flag.values for flag in shell.flags(script)}
    assert found["--num-experts"] == ("8",)
    assert found["--moe-ffn-hidden-size"] == ("2048",)
    assert found["--moe-layer-freq"] == ("([0]*1+[1]*31)",)
    assert found["--moe-router-topk"] == ("2",)
    assert "$" in found["--nnodes"][0]


def test_a_variable_that_nobody_assigns_is_named() -> None:
    assert flags("--tensor-model-parallel-size $TP").unknown == ["--tensor-model-parallel-size $TP"]


def test_every_flag_is_told_as_what_it_is() -> None:
    found = flags("--frobnicate 3 --lr 1e-4 --overlap-grad-reduce --mtp-num-layers 1 --save $WHERE")
    assert found.unknown == ["--frobnicate 3", "--mtp-num-layers 1"]
    assert found.ignored == ["--lr", "--save"]
    assert found.by_stack == ["--overlap-grad-reduce"]


def test_megatrons_own_defaults_stand_for_what_is_not_said() -> None:
    values = flags("--swiglu").values
    assert values["model.ffn"] == 10880  # two thirds of 4 h, a multiple of 64
    assert (values["model.kv_heads"], values["model.head_dim"], values["model.bias"]) == (32, 128, True)
    assert (values["training.dropout"], values["training.attention"]) == (True, "flash")
    assert flags("--attention-backend unfused").values["training.attention"] == "unfused"


@pytest.mark.parametrize(
    ("size", "t", "multiple", "rows"),
    [
        (50257, 8, 128, 51200),
        (151936, 8, 128, 152576),
        (151936, 1, 128, 151936),
        (32000, 2, 128, 32000),
        (49954, 16, 1, 49968),
    ],
)
def test_vocabularies_are_padded_to_what_t_divides(size: int, t: int, multiple: int, rows: int) -> None:
    text = f"--vocab-size {size} --tensor-model-parallel-size {t} --make-vocab-size-divisible-by {multiple}"
    assert flags(text).values["model.vocab"] == rows


P, STRING = "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout"


@pytest.mark.parametrize(
    ("layers", "text", "said"),
    [
        (80, "--pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 2", "16 layers on no stage"),
        (30, "--pipeline-model-parallel-size 4", "--num-layers=30 does not divide over --pipeline-model-parallel-size=4"),
        (40, "--pipeline-model-parallel-size 16", "leave 8 layers on no stage"),
        (20, "--decoder-last-pipeline-num-layers 1", "19 layers left, which would lie on no stage"),
        (8, f"{P} 2 {STRING} 'Ettt|tttL'", "holds 6 layers, t, 2 fewer than model.layers=8. Nearest: Et*4|t*4L"),
        (8, f"{P} 2 {STRING} 't*8|EL'", "layout='t*8|EL': E, the embedding, must be first"),
        (8, f"{P} 2 {STRING} 'E(t|)*9999999L'", "writes out to more than 300,000 letters"),
        (8, f"{P} 3 {STRING} 't*8|L'", "layout='t*8|L': E, the embedding, is missing"),
        (8, f"{P} 3 {STRING} 'Et*8|L'", f"has 2 stages, which {P}=3"),
        (8, "--num-virtual-stages-per-pipeline-rank 0", "must be a whole number of at least 1"),
        (8, f"{P} 2 --decoder-first-pipeline-num-layers 3 --account-for-loss-in-pipeline-split", "cannot go with"),
        (29, f"{P} 2 --num-layers-per-virtual-pipeline-stage 2 --account-for-embedding-in-pipeline-split",
         "--num-layers=29 with --account-for-embedding-in-pipeline-split / --pipeline-model-parallel-size=2 = 15"),
        (8, "--num-layers-per-virtual-pipeline-stage 2 --num-virtual-stages-per-pipeline-rank 2", "cannot be given together"),
        (8, "--tensor-model-parallel-size many", "must be a whole number"),
        (8, "--pipeline-model-parallel-size 0", "must be at least 1"),
        (8, "--nnodes 1 --nproc-per-node 8 --pipeline-model-parallel-size 3", "does not divide the 8 GPUs"),
    ],
)  # fmt: skip
def test_layers_that_would_be_lost_are_refused(layers: int, text: str, said: str) -> None:
    problems = reading.read(f"{BASE} --num-layers {layers} {text}", "megatron_lm")[1].problems
    assert any(said in each for each in problems), problems


def test_deepspeeds_batch_is_micro_batch_times_accumulation_times_d() -> None:
    content = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
        "train_batch_size": 128,
        "zero_optimization": {"stage": 1},
    }
    content |= {"fp16": {"enabled": True}, "gradient_clipping": 1.0, "odd": 3}
    _, found, _ = reading.read(json.dumps(content))
    assert (found.values["parallel.d"], found.values["parallel.zero"], found.values["training.precision"]) == (
        8,
        1,
        "fp16",
    )
    assert (found.unknown, found.problems) == (["odd=3"], [])
    _, found, _ = reading.read(json.dumps(content | {"train_batch_size": 100}))
    assert found.problems[0].startswith("train_batch_size=100 is not")
    assert found.problems[0].endswith("Nearest: train_batch_size=96.")


LLAMA3 = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = LLAMA3 | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280, "max_position_embeddings": 163840,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4,
    "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
}  # fmt: skip
COUNTS: list[tuple[dict[str, Any], int]] = [
    (LLAMA3, 8_030_261_248),
    (LLAMA3 | {"model_type": "mistral", "vocab_size": 32000}, 7_241_732_096),
    (MIXTRAL, 46_702_792_704),
    ({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}, 124_439_808),
    (
        {"model_type": "gpt_neox", "num_hidden_layers": 44, "hidden_size": 6144, "num_attention_heads": 64,
         "intermediate_size": 24576, "vocab_size": 50432, "max_position_embeddings": 2048, "tie_word_embeddings": False},
        20_554_567_680,
    ),
    ({"model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880}, 176_247_271_424),
    (
        {"model_type": "gemma", "num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 16,
         "num_key_value_heads": 16, "head_dim": 256, "intermediate_size": 24576, "vocab_size": 256000,
         "max_position_embeddings": 8192},
        8_537_680_896,
    ),
    (DEEPSEEK, 671_026_419_200),
    (
        DEEPSEEK | {"model_type": "deepseek_v2", "num_hidden_layers": 60, "hidden_size": 5120, "intermediate_size": 12288,
                    "vocab_size": 102400, "n_routed_experts": 160, "moe_intermediate_size": 1536, "n_shared_experts": 2,
                    "first_k_dense_replace": 1, "num_experts_per_tok": 6},
        235_741_434_880,
    ),
    (
        {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
         "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 131072,
         "tie_word_embeddings": False},
        7_615_616_512 - 28 * (3584 + 2 * 512),  # its biases of queries, keys and values
    ),
    (
        {"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
         "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
         "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
         "tie_word_embeddings": False},
        30_532_122_624 - 48 * 2 * 128,  # its norms of queries and keys
    ),
]  # fmt: skip
"""The released configurations, and the parameters of the released weights."""


@pytest.mark.parametrize(
    ("content", "parameters"), COUNTS, ids=lambda each: each["model_type"] if isinstance(each, dict) else ""
)
def test_hugging_face_models_have_their_published_parameters(content: dict[str, Any], parameters: int) -> None:
    _, found, _ = reading.read(json.dumps(content))
    assert found.problems == found.untold == found.unknown == []
    assert found.values.get("model.moe.group_limit", 1) == content.get("topk_group", 1)
    assert total_parameters(point_of(found.values, composed()).model) == parameters


def test_shapes_that_do_not_fit_are_refused() -> None:
    assert "no shape of ours" in hugging_face.read({"model_type": "t5"}).problems[0]
    assert "attention_bias=True" in hugging_face.read(LLAMA3 | {"attention_bias": True}).problems[0]


def test_torchtitans_published_file_is_read_with_its_older_names() -> None:
    """llama3_8b.toml of torchtitan 0.1: 64 GPUs are for the cluster to say."""
    text = """
    [job]
    dump_folder = "./outputs"
    [model]
    name = "llama3"
    flavor = "8B"
    [training]
    batch_size = 1
    seq_len = 8192
    compile = false
    [parallelism]
    data_parallel_shard_degree = -1
    tensor_parallel_degree = 1
    surprise = 3
    [activation_checkpoint]
    mode = "selective"
    selective_ac_option = "op"
    """
    form, found, content = reading.read(text)
    assert (form, torchtitan_reader.model_of(content).name) == ("torchtitan", "llama3_8b")
    assert (found.values["parallel.zero"], found.values["training.micro_batch"]) == (3, 1)
    assert found.values["training.recompute"] == "operators"
    assert (found.unknown, found.untold, found.problems) == (["parallelism.surprise=3"], ["training.global_batch"], [])


def test_torchtitan_gives_the_first_stages_one_unit_more() -> None:
    """distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part: embedding and head count as a layer each."""
    assert torchtitan.own_cut(3, 2) == (3, 2)
    assert torchtitan.own_cut(32, 8) == (5, 5, 4, 4, 4, 4, 4, 4)
    assert torchtitan.modules((3, 2)) == [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "norm", "output"]]


def test_nanotron_cuts_llama_3_8b_in_eight_as_it_does() -> None:
    """By hand: the head costs as much as 2.16 layers, so each stage ends behind the layer that passes a multiple of 4.27."""
    spec = composed("model=llama3_8b").model
    values = {f"model.{key}": getattr(spec, key) for key in ("hidden", "heads", "ffn", "layers", "vocab")}
    assert nanotron.own_cut(values, 8) == (6, 4, 4, 5, 4, 4, 4, 3)
    assert sum(nanotron.own_cut(values, 3)) == 34


ANYTHING = st.one_of(
    st.integers(-3, 9), st.sampled_from(["", "0", "auto", "x", "9" * 30, "1.5", "$X", "Ettt|L", "type:layer", "true"])
)
NAMES = sorted(megatron_reader.KNOWN | megatron_deepspeed.KNOWN)


@pytest.mark.parametrize("form", ["megatron_lm", "megatron_deepspeed"])
@settings(max_examples=150)
@given(drawn=st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=8))
def test_no_flags_whatever_make_it_crash(form: str, drawn: dict[str, Any]) -> None:
    with contextlib.suppress(Invalid):
        found = reading.read(" ".join(f"{name} {value}" for name, value in drawn.items()), form)[1]
        if not found.problems and not found.untold:
            point_of(found.values, composed())


@settings(max_examples=150)
@given(text=st.text(st.sampled_from("AB=()$\"'\\{}[]*-x1 \n|`#"), max_size=60))
def test_no_script_whatever_makes_it_crash(text: str) -> None:
    with contextlib.suppress(Invalid):
        shell.flags(text)


def test_variables_that_grow_without_end_are_refused() -> None:
    script = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A\n" * 20 + "run --x $A"
    with pytest.raises(Invalid, match="characters that are read"):
        shell.flags(script)


def test_aliases_that_stand_for_a_large_file_are_refused() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{k}: &a{k} [" + ", ".join([f"*a{k - 1}"] * 10) + "]" for k in range(1, 9)]
    with pytest.raises(Invalid, match="it must be tables"):
        reading.read("parallelism: {tp: 1}\n" + "\n".join(lines), "nanotron")


def test_a_torchtitan_flavor_of_ones_own_is_read_back_by_its_models_name() -> None:
    assert torchtitan_reader.model_of({"model": {"name": "bloom_176b", "flavor": torchtitan.OWN}}).name == "bloom_176b"
    with pytest.raises(Invalid, match=r"no shape of ours, and the file does not hold it.*flavor of your own"):
        torchtitan_reader.model_of({"model": {"name": "mine", "flavor": "7B"}})


def test_a_flag_without_its_value_is_told_as_that() -> None:
    assert (
        "--num-layers without a value must be a whole number."
        in megatron_reader.read("run --num-layers --bf16").problems
    )
