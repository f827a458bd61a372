"""A split backward is really split, what is used up is really freed, and each layer computes what PyTorch's does."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from execute_cases import job, job_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pipesim.execute import actions, layers, live
from pipesim.execute.actions import Bench
from pipesim.execute.batch import random_batches
from pipesim.execute.live import Activation, Live
from pipesim.execute.reference import initial_state
from pipesim.execute.run import execute
from pipesim.execute.tensor_parallel import Team
from pipesim.schedules import read_schedule, schedule_names
from pipesim.schedules.action import Action
from pipesim.simulate import simulate


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.overloadpacket.__name__ in ("mm", "addmm", "bmm")
        return function(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def no_collector() -> Iterator[None]:
    """Without the garbage collector memory is freed by the last reference or not at all."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def bench_of(rows: str) -> Bench:
    made = job_of(read_schedule(rows))
    weights = {name: weight.double().requires_grad_() for name, weight in initial_state(made).items()}
    batch = random_batches(made)[0][0]
    return Bench(job=made, replica=0, step=0, batch=batch, weights=weights, team=Team(), live=Live())


def step(bench: Bench, text: str) -> int:
    """Runs one action of a single stage; the number of matrix products."""
    with Products() as products:
        actions.run(Action.parse(text), None, bench)
    return products.count


LINEARS = 2 * 4 + 1
"""Four layers in each of two blocks, and the head."""


def test_i_computes_input_gradients_only_and_w_weight_gradients_only() -> None:
    bench = bench_of("0F0,0I0,0W0\n")
    assert step(bench, "0F0") == LINEARS
    assert step(bench, "0I0") == LINEARS
    assert all(weight.grad is None for weight in bench.weights.values())
    assert step(bench, "0W0") == LINEARS
    assert all(weight.grad is not None for weight in bench.weights.values())


def test_a_whole_b_computes_both() -> None:
    bench = bench_of("0F0,0B0\n")
    step(bench, "0F0")
    assert step(bench, "0B0") == 2 * LINEARS
    assert all(weight.grad is not None for weight in bench.weights.values())


def test_i_and_w_add_up_to_b_bit_by_bit() -> None:
    whole, split = bench_of("0F0,0B0\n"), bench_of("0F0,0I0,0W0\n")
    for bench, texts in ((whole, ("0F0", "0B0")), (split, ("0F0", "0I0", "0W0"))):
        for text in texts:
            step(bench, text)
    for name, weight in whole.weights.items():
        assert weight.grad is not None
        assert torch.equal(weight.grad, split.weights[name].grad)


@pytest.mark.usefixtures("no_collector")
def test_an_activation_lives_from_its_forward_until_its_weight_gradients_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved: list[weakref.ref[Tensor]] = []
    right = live._Saved

    def watched(tensor: Tensor, activation: Activation) -> Any:
        saved.append(weakref.ref(tensor))
        return right(tensor, activation)

    monkeypatch.setattr(live, "_Saved", watched)
    bench = bench_of("0F0,0I0,0W0\n")
    alive = {}
    for text in ("0F0", "0I0", "0W0"):
        step(bench, text)
        alive[text] = bench.live.now, sum(tensor() is not None for tensor in saved)
    assert alive["0F0"] == (1, len(saved))
    assert len(saved) > 2 * LINEARS
    assert alive["0I0"][0] == 1
    assert alive["0W0"] == (0, 0)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", schedule_names())
def test_as_many_activations_are_in_memory_as_the_simulator_says(name: str) -> None:
    torch.set_num_threads(1)
    made = job(name, 4, 6, steps=1, dtype="float32", dropout=0.1)
    assert execute(made, mode="threads").peak_live == simulate(made.schedule).peak_inflight


def owing() -> Activation:
    return Activation(now=False)


@pytest.mark.parametrize("kind", ["linear", "head", "norm", "embedding"])
def test_layers_have_pytorch_s_gradients(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    modules: dict[str, nn.Module] = {
        "linear": nn.Linear(5, 4),
        "head": nn.Linear(5, 4, bias=False),
        "norm": nn.LayerNorm(5),
        "embedding": nn.Embedding(7, 4),
    }
    module = modules[kind].double()
    weight, bias = module.weight, getattr(module, "bias", None)
    activation = owing()
    given = torch.randint(7, (2, 3)) if kind == "embedding" else x
    inputs = [given if kind == "embedding" else given.clone().requires_grad_() for _ in range(2)]
    ours = {
        "linear": lambda each: layers.linear(each, weight, bias, activation),
        "head": lambda each: layers.linear(each, weight, None, activation),
        "norm": lambda each: layers.layer_norm(each, weight, bias, activation),
        "embedding": lambda each: layers.embedding(each, weight, activation),
    }[kind](inputs[0])
    theirs = module(inputs[1])
    assert torch.equal(ours, theirs)
    gradient = torch.randn_like(ours)
    theirs.backward(gradient)
    wanted = {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    ours.backward(gradient)
    assert all(parameter.grad is None for parameter in module.parameters())
    activation.pay()
    assert all(torch.equal(parameter.grad, wanted[name]) for name, parameter in module.named_parameters())
    if kind != "embedding":
        assert torch.equal(inputs[0].grad, inputs[1].grad)


def test_a_bias_alone_has_the_sum_as_its_gradient() -> None:
    x, bias = torch.randn(2, 3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    activation = owing()
    layers.add_bias(x, bias, activation).backward(torch.ones(2, 3, 5))
    activation.pay()
    assert bias.grad.tolist() == [6.0] * 5
    assert torch.equal(x.grad, torch.ones(2, 3, 5))
