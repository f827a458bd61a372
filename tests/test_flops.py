"""FLOP conventions give the figures of their papers, and change no time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from points import EVERY, SMALL, composed, point, row
from shapes import cut, gpt, stages

from pipesim.checks import Invalid
from pipesim.costs.flops import narayanan, per_token
from pipesim.costs.parameters import total_parameters
from pipesim.report.words import FLOP_WORDS, definitions
from pipesim.specs import CostConstants, ModelSpec

COUNTED = ("model_tflops_per_gpu", "mfu", "hfu", "flop_convention")

PALM = gpt(
    layers=118, hidden=18432, heads=48, kv_heads=1, head_dim=256, ffn=4 * 18432, gated=True, vocab=256_000, bias=False,
    positions="rotary", tied_embeddings=True,
)  # fmt: skip
"""Chowdhery et al., "PaLM", 2022, section 2 and table 1: SwiGLU, multi-query attention, tied embeddings."""


def of(convention: Any, model: ModelSpec, recompute: str = "none") -> list[float]:
    held = stages(model, (model.units,))
    again = np.ones_like(held.dense) * (recompute != "none")
    counted = per_token(convention, model, cut(recompute=recompute), again, held)
    return [float(np.squeeze(each)) for each in counted]


def test_palm_s_published_mfu_and_hfu() -> None:
    # Section 4.1: 238.3K tokens/s on 6144 TPU v4 of 275 TFLOP/s: 46.2 % MFU, 57.8 % HFU; rematerialisation was partial
    assert total_parameters(PALM) == pytest.approx(540.35e9, rel=1e-4)
    speed = 238.3e3 / (6144 * 275e12)
    mfu, all_again = (each * speed for each in of("palm", PALM, "full"))
    assert mfu == pytest.approx(0.462, abs=5e-4)
    assert mfu < 0.578 < all_again == pytest.approx(0.616, abs=2e-3)


@pytest.mark.parametrize(("model", "tokens", "gpus", "tflops", "days"), [
    ("gpt3_175b", 300e9, 1024, 140, 34), ("megatron_1t", 450e9, 3072, 163, 84),
])  # fmt: skip
def test_narayanan_s_achieved_flops_give_their_days_of_training(
    model: str, tokens: float, gpus: int, tflops: float, days: float
) -> None:
    # Narayanan et al. 2021, section 5.1: days by 8 T P / (n X), which leaves attention and head out of equation 3
    counted = float(np.squeeze(narayanan(composed(f"model={model}").model, 2048)))
    assert tokens * counted / (gpus * tflops * 1e12) / 86400 == pytest.approx(days, rel=0.025)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_equation_3_is_what_a_gpt_that_runs_all_again_really_computes(recompute: str) -> None:
    model = gpt()
    (flops, hardware), (_, really) = of("narayanan", model, recompute), of("palm", model, "full")
    assert flops == hardware == pytest.approx(really, rel=1e-12)


def test_conventions_by_hand() -> None:
    # 24 layers of 12 h^2 weights, the head h V; 12 L H Q T = 12 x 24 x 4096 x 2048
    layers, head, square = 24 * 12 * 4096**2, 4096 * 51200, 12 * 24 * 4096 * 2048
    assert of("palm", gpt(), "full") == [6 * (layers + head) + square, 8 * layers + 6 * head + 4 / 3 * square]
    assert of("causal", gpt(), "full") == [6 * (layers + head) + square / 2, 8 * layers + 6 * head + 2 / 3 * square]
    assert of("kaplan", gpt(), "full") == [6 * layers, 8 * layers]
    assert of("palm", gpt(), "selective")[1] == of("palm", gpt())[0] + square / 3
    assert of("causal", gpt(), "operators")[1] == of("causal", gpt())[0] + layers


@pytest.mark.parametrize("name", EVERY)
def test_a_convention_changes_what_is_counted_and_nothing_else(name: str) -> None:
    rows = {each: row(*EVERY[name], flops=each) for each in FLOP_WORDS}
    asked = composed(*EVERY[name])
    peak = asked.cluster.peak_flops_per_s[asked.training.precision]
    for convention, each in rows.items():
        assert each["flop_convention"] == convention
        assert each["model_tflops_per_gpu"] * 1e12 == pytest.approx(each["mfu"] * peak, rel=1e-12)
        assert {k: v for k, v in each.items() if k not in COUNTED} == {
            k: v for k, v in rows["palm"].items() if k not in COUNTED
        }
    assert rows["kaplan"]["mfu"] < rows["causal"]["mfu"] < rows["palm"]["mfu"]
    assert row(*EVERY[name]) == rows["palm"]


def test_bloom_s_log_prints_equation_3() -> None:
    # tr11-176B-ml/chronicles.md, iteration 85376: 149.77 TFLOP/s at 104.70 s a step
    bloom = row(flops="narayanan")
    assert bloom["model_tflops_per_gpu"] * bloom["step_time_s"] / 104.70 == pytest.approx(149.77, abs=0.01)


def test_the_lecture_counts_six_a_parameter_and_refuses_to_count_more() -> None:
    assert row("costs=lecture")["flop_convention"] == "kaplan"
    assert row("costs=lecture", flops="kaplan") == row("costs=lecture")
    with pytest.raises(Invalid, match=r"costs.flops=causal: costs.kind=lecture .* Nearest: costs.flops=null."):
        CostConstants(kind="lecture", flops="causal")
    with pytest.raises(Invalid, match=r"costs.flops='six' must be one of palm, causal, kaplan, narayanan"):
        point(*SMALL, flops="six")


def test_reports_define_what_they_count() -> None:
    for convention, words in FLOP_WORDS.items():
        text = " ".join(definitions([convention]))
        assert words[0] in text
        assert all(word in text for word in ("MFU =", "HFU =", "GiB", "Bubble fraction =", "bubble overhead ="))
