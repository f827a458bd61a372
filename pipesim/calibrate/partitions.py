"""How a row's layers lie on its stages, by what it states and by the habits of its stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipesim.costs import parameters
from pipesim.costs.stage import balanced_partition
from pipesim.specs import ModelSpec

REDISTRIBUTED_AT = 4096
"""Tokens in a sequence for which layers are redistributed: the longer of the source's two lengths, whose times show one
setting for both.
"""


def partition_of(cells: Mapping[str, str], model: ModelSpec, stages: int) -> tuple[int, ...]:
    """Units of each stage: embedding, layers, head. Where nothing is said, as even as can be, the ends first."""
    layers = model.layers
    if "redistribution" in cells["schedule"]:
        return redistributed(layers, head_work(model, REDISTRIBUTED_AT), stages)
    if cells["stack"] == "nanotron":
        return by_thresholds([0.0, *[1.0] * layers, head_layers(model)], stages)
    return balanced_partition(layers + 2, stages)


def head_layers(model: ModelSpec) -> float:
    """The head's parameters over those of one layer."""
    layer = parameters.layer_parameters(model, moe=model.moe is not None)
    return parameters.head_parameters(model) / (layer.sharded + layer.replicated)


def head_work(model: ModelSpec, seq_length: int) -> float:
    """The head's FLOPs over those of one layer, the full square of scores included (Narayanan et al. 2021, appendix)."""
    layer = parameters.layer_parameters(model, moe=model.moe is not None)
    return parameters.head_parameters(model) / (layer.sharded + 2 * seq_length * model.heads * model.head_dim)


def redistributed(layers: int, head: float, stages: int) -> tuple[int, ...]:
    """The last stage gives layers away until none is slower; the others share them, late ones first, which hold fewer
    micro-batches. ``head`` is the head's work in layers.

    Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, section 6; their launcher
    asks for the last stage's layers alone.

    >>> redistributed(layers=32, head=2.9, stages=8)
    (5, 4, 4, 4, 4, 5, 5, 3)
    """
    others = stages - 1
    last = min(range(layers // stages + 1), key=lambda last: (max(last + head, -(-(layers - last) // others)), -last))
    each, more = divmod(layers - last, others)
    parts = [each + (stage >= others - more) for stage in range(others)]
    return (parts[0] + 1, *parts[1:], last + 1)


def by_thresholds(weights: Sequence[float], stages: int) -> tuple[int, ...]:
    """Units in order, on to the next stage once all so far weigh more than this stage's share and those before it.

    The rule of nanotron's pipeline (``PipelineEngine`` and ``build_model``); late stages may stay empty.

    >>> by_thresholds([0, 1, 1, 1, 1, 2], 3)
    (4, 2, 0)
    """
    parts, stage, so_far = [0] * stages, 0, 0.0
    for weight in weights:
        so_far += weight
        parts[stage] += 1
        if stage < stages - 1 and so_far > sum(weights) * (stage + 1) / stages:
            stage += 1
    return tuple(parts)
