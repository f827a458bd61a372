"""Parameter counts against what the models' authors publish, exactly where they publish exact counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from pipesim.config import ModelConf
from pipesim.costs.parameters import (
    active_parameters,
    dense_layers,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    moe_layers,
    total_parameters,
)
from pipesim.specs import Mla, ModelSpec, Moe

FOLDER = Path(__file__).parents[1] / "conf" / "model"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

EXACT = {
    "bloom_176b": 176_247_271_424,  # model card of bigscience/bloom
    "gpt2_small": 124_439_808,  # parameters of the released gpt2, the tied head once
    "llama2_7b": 6_738_415_616,  # here and below: sum of the released checkpoint's tensors
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
    "mixtral_8x7b": 46_702_792_704,
    # Without the multi-token-prediction module and FP8 scales; with 58 x 256 balancing biases of the routers.
    "deepseek_v3": 671_026_419_200,
}

# In billions, as printed, and half of the last printed digit.
MEGATRON = {  # Narayanan et al. 2021, Table 1
    "megatron_1_7b": (1.7, 0.05),
    "megatron_3_6b": (3.6, 0.05),
    "megatron_7_5b": (7.5, 0.05),
    "megatron_18b": (18.4, 0.05),
    "megatron_39b": (39.1, 0.05),
    "megatron_76b": (76.1, 0.05),
    "megatron_145b": (145.6, 0.05),
    "megatron_310b": (310.1, 0.05),
    "megatron_530b": (529.6, 0.05),
    "megatron_1t": (1008.0, 0.05),
}
ROUNDED = MEGATRON | {  # Korthikanti et al. 2022, Table 3, by the models' names: 22B, 175B, 530B, 1T
    "gpt_22b": (22, 0.5),
    "gpt3_175b": (175, 0.5),
    "mt_nlg_530b": (530, 0.5),
    "gpt_1t": (1000, 10),  # named 1T: 1.008 trillion
}


def load(name: str) -> ModelSpec:
    """A model of ``conf/``, checked by its schema, its nulls filled in."""
    merged = OmegaConf.merge(OmegaConf.structured(ModelConf), OmegaConf.load(FOLDER / f"{name}.yaml"))
    values: Any = OmegaConf.to_container(merged, throw_on_missing=True)
    values["kv_heads"] = values["kv_heads"] or values["heads"]
    values["head_dim"] = values["head_dim"] or values["hidden"] // values["heads"]
    values["ffn"] = values["ffn"] or 4 * values["hidden"]
    values["mla"] = Mla(**values["mla"]) if values["mla"] else None
    values["moe"] = Moe(**values["moe"]) if values["moe"] else None
    return ModelSpec(**values)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_names_itself_and_its_source(name: str) -> None:
    model = load(name)
    assert model.name == name
    assert model.source


def test_every_model_but_the_toy_is_held_against_a_published_count() -> None:
    assert set(NAMES) == {*EXACT, *ROUNDED, "toy"}


@pytest.mark.parametrize("name", EXACT)
def test_counts_equal_the_published_ones_to_the_last_parameter(name: str) -> None:
    assert total_parameters(load(name)) == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_counts_round_to_the_printed_ones(name: str) -> None:
    billions, tolerance = ROUNDED[name]
    assert total_parameters(load(name)) / 1e9 == pytest.approx(billions, abs=tolerance)


@pytest.mark.parametrize("name", [*MEGATRON, "gpt_22b", "gpt3_175b", "mt_nlg_530b", "gpt_1t", "gpt2_small"])
def test_gpt_counts_follow_the_published_formula_and_the_final_norm_it_leaves_out(name: str) -> None:
    # Narayanan et al. 2021, equation 2: P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
    model = load(name)
    layers, h = model.layers, model.hidden
    formula = 12 * layers * h**2 + 13 * layers * h + (model.vocab + model.context) * h
    assert total_parameters(model) == formula + 2 * h


def test_bloom_has_the_embedding_parameters_of_its_model_card() -> None:
    model = load("bloom_176b")
    assert head_parameters(model) == 3_596_615_680  # "embedding parameters": the token table
    assert embedding_parameters(model) == 3_596_615_680 + 2 * 14336  # and the norm behind it


def test_the_toy_counts_as_by_hand() -> None:
    model = load("toy")
    assert embedding_parameters(model) == 44 * 64 + 96 * 64 == 8_960
    layer = layer_parameters(model, moe=False)
    # query, key, value 3 x 64 x 64; output 64 x 64; up 64 x 256; down 256 x 64; biases of query, key, value and up
    assert layer.sharded == 12_288 + 4_096 + 16_384 + 16_384 + 192 + 256 == 49_600
    # two norms of weight and bias; biases of output and down
    assert layer.replicated == 4 * 64 + 64 + 64 == 384
    assert layer.expert == 0
    assert final_norm_parameters(model) == 128
    assert head_parameters(model) == 44 * 64 == 2_816
    assert total_parameters(model) == 8_960 + 2 * (49_600 + 384) + 128 + 2_816 == 111_872


def test_grouped_queries_shrink_keys_and_values_alone() -> None:
    model = load("llama3_8b")
    layer = layer_parameters(model, moe=False)
    assert layer.sharded == 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
    assert layer.replicated == 2 * 4096


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mixtral_8x7b", "deepseek_v3")])
def test_a_dense_model_is_active_as_a_whole(name: str) -> None:
    model = load(name)
    assert active_parameters(model) == total_parameters(model)
    assert (dense_layers(model), moe_layers(model)) == (model.layers, 0)


def test_mixtral_activates_two_experts_of_eight() -> None:
    model = load("mixtral_8x7b")
    assert (dense_layers(model), moe_layers(model)) == (0, 32)
    layer = layer_parameters(model, moe=True)
    assert layer.expert == 8 * 3 * 4096 * 14336
    assert layer.replicated == 2 * 4096 + 4096 * 8  # norms and router
    assert active_parameters(model) == EXACT["mixtral_8x7b"] - 32 * 6 * 3 * 4096 * 14336
    assert active_parameters(model) / 1e9 == pytest.approx(13, abs=0.5)  # Jiang et al. 2024, abstract: 13B


def test_deepseek_v3_activates_37_billion() -> None:
    model = load("deepseek_v3")
    assert (dense_layers(model), moe_layers(model)) == (3, 58)
    # README_WEIGHTS of the release: 36.6B "including 0.9B for the output head", so without the token table.
    without_table = active_parameters(model) - embedding_parameters(model)
    assert without_table / 1e9 == pytest.approx(36.6, abs=0.05)
    # DeepSeek-V3 Technical Report, abstract: 37B.
    assert without_table / 1e9 == pytest.approx(37, abs=0.5)


def test_router_biases_of_deepseek_v3_are_one_for_each_routed_expert() -> None:
    model = load("deepseek_v3")
    assert model.moe is not None
    without = dataclasses.replace(model, moe=dataclasses.replace(model.moe, router_bias=False))
    assert total_parameters(without) == 671_026_404_352 == total_parameters(model) - 58 * 256


def test_latent_attention_of_deepseek_v3_counts_as_by_hand() -> None:
    layer = layer_parameters(load("deepseek_v3"), moe=False)
    up = 1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128)
    output = 128 * 128 * 7168
    assert layer.sharded == up + output + 3 * 7168 * 18432
    down = 7168 * 1536 + 7168 * (512 + 64)
    assert layer.replicated == down + 1536 + 512 + 2 * 7168


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_add_up_to_the_whole(name: str) -> None:
    model = load(name)
    layers = sum(layer_parameters(model, moe=i >= dense_layers(model)).total for i in range(model.layers))
    head = 0 if model.tied_embeddings else head_parameters(model)
    parts = embedding_parameters(model) + layers + final_norm_parameters(model) + head
    assert parts == total_parameters(model)
    assert all(type(part) is int for part in (parts, active_parameters(model), *layer_parameters(model, moe=False)))
