"""What fp8 adds to a layer's kernels: operands are cast, transposed and, for experts, padded."""

from __future__ import annotations

import pytest
from shapes import cut
from test_compute import HBM, load, on

from pipesim.costs.compute import layer_seconds


def test_operands_of_fp8_products_are_cast() -> None:
    model, tokens = load("gpt3_175b"), 4096
    h, cast = model.hidden, layer_seconds(load("gpt3_175b"), cut(), on(cast_bytes=4), moe=False)
    # inputs of QKV, output, up, down: h + h + h + 4 h; gradients of their outputs: 3 h + h + 4 h + h
    assert cast.forward.elementwise_s == pytest.approx(4 * tokens * 7 * h / HBM, rel=1e-12)
    assert cast.input_grad.elementwise_s == pytest.approx(4 * tokens * 9 * h / HBM, rel=1e-12)


def test_operands_that_are_gathered_in_fp8_are_cast_where_they_lie_and_transposed_where_they_arrive() -> None:
    model, tokens, shape = load("gpt3_175b"), 4096, {"t": 8, "sequence_parallel": True}
    h, plain = model.hidden, layer_seconds(load("gpt3_175b"), cut(**shape), on(), moe=False)
    cast = layer_seconds(model, cut(**shape), on(cast_bytes=4, fp8_gathers=True), moe=False)
    moved = [op.elementwise_s - before.elementwise_s for op, before in zip(cast[:2], plain[:2], strict=True)]
    # inputs of QKV and up: 3 bytes on an eighth of the tokens and 2 on all; of output and down: 4 on an eighth of the width
    assert moved[0] == pytest.approx(tokens * h / HBM * (2 * (3 / 8 + 2) + 4 * 5 / 8), rel=1e-12)
    assert moved[1] == pytest.approx(tokens * h / HBM * (2 * (3 / 8 + 2) + 4 * 7 / 8), rel=1e-12)


def test_what_experts_multiply_in_fp8_is_padded_and_cast_whole() -> None:
    model, shape = load("mixtral_8x7b"), {"e": 8, "t": 2, "sequence_parallel": True}
    both = [on(cast_bytes=4, fp8_gathers=True), on(cast_bytes=0)]
    narrow, wide = (layer_seconds(model, cut(**shape), each, moe=True).forward.elementwise_s for each in both)
    assert model.moe is not None
    h, ffn = model.hidden, model.moe.ffn
    # inputs of QKV and the router 3 bytes on half of the tokens and 2 on all, of the output matrix 4 on half of its width;
    # of each of a token's two experts 4 bytes, half of what its down matrix takes 4, and padding there and back 8
    moved = 2 * h * (3 / 2 + 2) + h / 2 * 4 + 2 * (4 * h + ffn / 2 * 4 + 8 * h)
    assert narrow - wide == pytest.approx(4096 * moved / HBM, rel=1e-12)
