"""What must come out: the uncut model in this process, with plain autograd and PyTorch's own optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipesim.execute import batch
from pipesim.execute.dropout import Dropout
from pipesim.execute.job import Job
from pipesim.toy.gpt import Gpt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The loss of each step, the gradients of the last one and the weights after it, by name."""

    losses: list[float]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]


def initial_state(job: Job) -> dict[str, Tensor]:
    """The weights of a new model, drawn from the job's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = Gpt(job.model)
    return {name: weight.detach() for name, weight in model.named_parameters()}


def check_state(job: Job, state: Mapping[str, Tensor]) -> None:
    """Raises ``ValueError`` unless ``state`` has every parameter of the model, in its shape, and nothing else."""
    wanted = {name: tuple(weight.shape) for name, weight in initial_state(job).items()}
    for name in sorted(wanted.keys() | state.keys()):
        if name not in state or name not in wanted:
            what = "is missing" if name in wanted else "is unknown"
            raise ValueError(f"state: {name} {what}; the model has {', '.join(wanted)}.")
        if tuple(state[name].shape) != wanted[name]:
            raise ValueError(f"state: {name} has shape {tuple(state[name].shape)}; the model needs {wanted[name]}.")


def reference(
    job: Job, state: Mapping[str, Tensor] | None = None, batches: Sequence[Tensor] | None = None
) -> Reference:
    """The same steps as ``execute`` takes. Replica by replica, its micro-batches one after another."""
    model = Gpt(job.model).to(job.torch_dtype)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in (state or initial_state(job)).items():
            weights[name].copy_(weight)
    make = torch.optim.SGD if job.optimizer == "sgd" else torch.optim.Adam
    optimizer = make(model.parameters(), lr=job.learning_rate)
    losses = []
    for number, each in enumerate(batches or batch.random_batches(job)):
        optimizer.zero_grad()
        losses.append(_backward(model, job, number, each))
        optimizer.step()
    return Reference(
        losses=losses,
        gradients={name: _gradient(weight) for name, weight in weights.items()},
        weights={name: weight.detach().clone() for name, weight in weights.items()},
    )


def _backward(model: Gpt, job: Job, step: int, batches: Tensor) -> float:
    """Leaves the gradient of the batch's mean loss, each replica's sum added to those before it; returns the loss."""
    summed = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    total = torch.zeros((), dtype=job.torch_dtype)
    for replica, own in enumerate(batches):
        model.zero_grad()
        for number in range(len(job.micro_batches)):
            inputs, targets = batch.micro_batch(job, own, number)
            handles = _drop(model, job, step, replica, number)
            logits = model(inputs).flatten(0, 1)
            loss = functional.cross_entropy(logits, targets.flatten(), reduction="sum") / job.tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            for handle in handles:
                handle.remove()
        for name, weight in model.named_parameters():
            summed[name] += _gradient(weight)
    for name, weight in model.named_parameters():
        weight.grad = summed[name]
    return float(total)


def _drop(model: Gpt, job: Job, step: int, replica: int, number: int) -> list[Any]:
    """Puts this micro-batch's dropout behind the layers that the executor drops behind."""
    if not job.dropout:
        return []
    masks = Dropout(
        rate=job.dropout, seed=job.seed, step=step, replica=replica, micro_batch=number,
        sequences=job.micro_batches[number], length=job.length, width=job.model.width,
    )  # fmt: skip

    def drop(name: str, layer: nn.Module) -> Any:
        return layer.register_forward_hook(lambda _layer, _inputs, output: output * masks.mask(name, output))

    layers = dict(model.named_modules())
    names = [f"blocks.{k}.{layer}" for k in range(job.model.blocks) for layer in ("projection", "down")]
    return [drop(name, layers[name]) for name in names]


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
