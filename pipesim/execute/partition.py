"""Which units (embedding, blocks, head) each stage has, and which parameters belong to a unit."""

from __future__ import annotations

from collections.abc import Iterator

from pipesim.toy.gpt import GptSpec

EMBEDDING, HEAD = "embedding", "head"

_OF_A_BLOCK = tuple(
    f"{layer}.{kind}"
    for layer in ("attention_norm", "qkv", "projection", "mlp_norm", "up", "down")
    for kind in ("weight", "bias")
)


def units(model: GptSpec) -> tuple[str, ...]:
    """Every unit in order: what a model can be cut between.

    >>> units(GptSpec(blocks=2))
    ('embedding', 'blocks.0', 'blocks.1', 'head')
    """
    return (EMBEDDING, *(f"blocks.{k}" for k in range(model.blocks)), HEAD)


def units_of_stages(model: GptSpec, stages: int, partition: tuple[int, ...] | None) -> tuple[tuple[str, ...], ...]:
    """Consecutive units for each stage: ``partition`` counts them, or else their numbers differ by one at most."""
    every = units(model)
    counts = partition or [len(every) * (s + 1) // stages - len(every) * s // stages for s in range(stages)]
    ends = [sum(counts[: s + 1]) for s in range(stages)]
    return tuple(every[end - count : end] for end, count in zip(ends, counts, strict=True))


def parameter_names(model: GptSpec, unit: str) -> tuple[str, ...]:
    """The unit's parameters, named as ``Gpt.named_parameters()`` does; a tied head has the token table."""
    if unit == EMBEDDING:
        return ("tokens.weight", "positions.weight")
    if unit == HEAD:
        return ("norm.weight", "norm.bias", "tokens.weight" if model.tied else "head.weight")
    return tuple(f"{unit}.{name}" for name in _OF_A_BLOCK)


def problems(model: GptSpec, stages: int, partition: tuple[int, ...] | None) -> Iterator[str]:
    """Every broken rule of a cut of ``model`` into ``stages``."""
    every = len(units(model))
    if stages > every:
        yield (
            f"{stages} stages need at least one unit each; {model.blocks} blocks, embedding and head are {every}. "
            f"Nearest: {every} stages, or a model of {stages - 2} blocks."
        )
    if partition is None:
        return
    if len(partition) != stages:
        yield f"partition has {len(partition)} entries for {stages} stages. Nearest: {stages} entries."
    if any(count < 1 for count in partition):
        yield f"partition={partition} leaves a stage without units; each needs at least 1."
    if sum(partition) != every:
        yield f"partition={partition} has {sum(partition)} units; the model has {every}. Nearest: a sum of {every}."
