"""Layers whose backward computes the gradient of their input alone; that of their weights is owed to the activation.

A whole B pays at once, an I leaves it for the W: the ``WeightGradStore`` of zero bubble (Qi et al., "Zero Bubble Pipeline
Parallelism", ICLR 2024) and DualPipe. The arithmetic is that of PyTorch's own backward, operation for operation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pipesim.execute.live import Activation

EPSILON = 1e-5
"""Of ``torch.nn.LayerNorm``."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """``x`` (..., in), ``weight`` (out, in), ``bias`` (out,): (..., out)."""
    return _apply(_Linear, x, weight, bias, activation)


def add_bias(x: Tensor, bias: Tensor, activation: Activation) -> Tensor:
    """``x`` (..., width) plus ``bias`` (width,)."""
    return _apply(_AddBias, x, bias, activation)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, activation: Activation) -> Tensor:
    """Over the last dimension of ``x``, as ``torch.nn.LayerNorm``."""
    return _apply(_LayerNorm, x, weight, bias, activation)


def embedding(tokens: Tensor, weight: Tensor, activation: Activation) -> Tensor:
    """Rows of ``weight`` (vocab, width) for int64 ``tokens`` of any shape."""
    return _apply(_Embedding, tokens, weight, activation)


def accumulate(weight: Tensor, gradient: Tensor) -> None:
    """Adds to ``weight.grad``."""
    if weight.grad is None:
        weight.grad = gradient
    else:
        weight.grad += gradient


def gradient_of(weight: Tensor) -> Tensor:
    """What is accumulated, zeros if nothing is."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.bias, ctx.activation = weight, bias, activation
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        rows, inputs = _rows(gradient), _rows(x)
        weight, bias = ctx.weight, ctx.bias

        def weight_gradient() -> None:
            accumulate(weight, rows.t().mm(inputs))
            if bias is not None:
                accumulate(bias, rows.sum(0))

        ctx.activation.owe(weight_gradient)
        return rows.mm(weight.detach()).view_as(x), None, None, None


class _AddBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, activation: Activation) -> Tensor:
        ctx.bias, ctx.activation = bias, activation
        return x + bias

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        bias, rows = ctx.bias, _rows(gradient)
        ctx.activation.owe(lambda: accumulate(bias, rows.sum(0)))
        return gradient, None, None


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, activation: Activation) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], weight, bias, EPSILON)
        ctx.save_for_backward(x, mean, rstd)
        ctx.weight, ctx.bias, ctx.activation = weight, bias, activation
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        x, mean, rstd = (saved.detach() for saved in ctx.saved_tensors)
        weight, bias = ctx.weight, ctx.bias

        def part(wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
            found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
                gradient, x, x.shape[-1:], mean, rstd, weight.detach(), bias.detach(), wanted
            )
            return found

        def weight_gradient() -> None:
            _, of_weight, of_bias = part([False, True, True])
            accumulate(weight, of_weight)
            accumulate(bias, of_bias)

        ctx.activation.owe(weight_gradient)
        return part([True, False, False])[0], None, None, None


class _Embedding(torch.autograd.Function):
    """Tokens have no gradient, so nothing but the weight's is ever computed here."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, activation: Activation) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.weight, ctx.activation = weight, activation
        return functional.embedding(tokens, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        (tokens,) = ctx.saved_tensors
        weight = ctx.weight

        def weight_gradient() -> None:
            rows = torch.ops.aten.embedding_dense_backward(gradient, tokens, len(weight), -1, False)
            accumulate(weight, rows)

        ctx.activation.owe(weight_gradient)
        return None, None, None


def _rows(x: Tensor) -> Tensor:
    """All but the last dimension as one, apart from any graph."""
    return x.detach().reshape(-1, x.shape[-1])


def _apply(function: type[torch.autograd.Function], *given: Any) -> Tensor:
    result: Tensor = function.apply(*given)  # type: ignore[no-untyped-call]
    return result
