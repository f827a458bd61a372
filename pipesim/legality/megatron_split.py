"""How Megatron-LM's flags split layers over stages: units of each stage, in the order of the model.

Each raises ``Invalid`` with the flag, its value and the nearest that works where Megatron-LM refuses, or would leave
layers on no stage. Stage ``chunk * p + rank`` is the rank's chunk, of v. Source: Megatron-LM core_v0.13,
``core/transformer/transformer_block.py``: ``get_num_layers_to_build``; ``training/arguments.py``.
"""

from __future__ import annotations

from pipesim.checks import Invalid, nearest_divisors

FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING, LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
LAYERS, P, V = "--num-layers", "--pipeline-model-parallel-size", "--num-virtual-stages-per-pipeline-rank"
PER_STAGE = "--num-layers-per-virtual-pipeline-stage"
LAYOUT = "--pipeline-model-parallel-layout"


def stages_per_rank(layers: int, p: int, layers_per_stage: int, embedding: bool = False, loss: bool = False) -> int:
    """v, where layers of a virtual stage are asked for; ``embedding`` and ``loss`` as for ``even``.

    >>> stages_per_rank(80, 8, 5)
    2
    """
    even(layers, p, 1, embedding, loss)
    counted = layers + embedding + loss
    on_rank = counted // p
    v = on_rank // layers_per_stage
    if on_rank % layers_per_stage:
        raise Invalid(
            [
                f"{PER_STAGE}={layers_per_stage} does not divide {LAYERS}={layers}{_ends(embedding, loss)} / {P}={p} = {on_rank}: "
                f"{v} such stages on each rank leave {_lost(counted - p * v * layers_per_stage)} on no stage. "
                f"Nearest: {PER_STAGE}={nearest_divisors(on_rank, layers_per_stage)}."
            ]
        )
    return v


def even(layers: int, p: int, v: int = 1, embedding: bool = False, loss: bool = False) -> tuple[int, ...]:
    """Every stage as many; ``embedding`` and ``loss`` count as a layer each where they lie.

    >>> even(30, 4, embedding=True, loss=True), even(8, 2, 2)
    ((8, 8, 8, 8), (3, 2, 2, 3))
    """
    counted, stages = layers + embedding + loss, p * v
    each, left = divmod(counted, stages)
    if left:
        chunks = f" x {V}={v}" if v > 1 else ""
        fewer, more = layers - left, layers + stages - left
        counts = f"{each} on each of {stages} stages leave {_lost(left)} on no stage"
        raise Invalid(
            [
                f"{LAYERS}={layers}{_ends(embedding, loss)} does not divide over {P}={p}{chunks}: {counts}. "
                f"Nearest: {LAYERS}={f'{fewer} or ' if fewer > 0 else ''}{more}; parallel.partition=balanced places every layer."
            ]
        )
    units = [each] * stages
    units[0] += not embedding
    units[-1] += not loss
    return tuple(units)


def first_last(layers: int, p: int, first: int | None, last: int | None, v: int = 1) -> tuple[int, ...]:
    """The first and the last rank hold as many layers as is said, the others share the rest; each rank's go evenly to
    its v chunks.

    >>> first_last(30, 4, 7, 7), first_last(61, 16, None, 1)
    ((8, 8, 8, 8), (5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2))
    """
    given = {flag: count for flag, count in ((FIRST, first), (LAST, last)) if count is not None}
    others, left = p - len(given), layers - sum(given.values())
    said = " and ".join(f"{flag}={count}" for flag, count in given.items())
    if left < 0 or others < 0 or (others == 0 and left):
        raise Invalid([f"{said or P} on {P}={p}: {_too_much(left, others, p)} Nearest: {_nearest(layers, p)}."])
    if others and left % others:
        start = f"{said} leave" if said else "There are"
        raise Invalid(
            [
                f"{start} {left} of {LAYERS}={layers} to {others} ranks of {P}={p}, which do not divide them: {left // others} "
                f"each leave {_lost(left % others)} on no stage. Nearest: {_dividing(given, left, others)}."
            ]
        )
    on_rank = [left // others if others else 0] * p
    if first is not None:
        on_rank[0] = first
    if last is not None:
        on_rank[-1] = last
    if v > 1 and (uneven := sorted({count for count in on_rank if count % v})):
        raise Invalid(
            [
                f"{V}={v} does not divide the {' and '.join(map(str, uneven))} layers of a rank"
                f"{f' that {said} make' if said else ''}. Nearest: {V}=1, or a {LAYOUT}."
            ]
        )
    units = [on_rank[rank] // v for _ in range(v) for rank in range(p)]
    units[0] += 1
    units[-1] += 1
    return tuple(units)


def _ends(embedding: bool, loss: bool) -> str:
    return "".join(f" with {flag}" for flag, asked in ((EMBEDDING, embedding), (LOSS, loss)) if asked)


def _lost(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _too_much(left: int, others: int, p: int) -> str:
    if left < 0:
        return f"that is {_lost(-left)} more than there are."
    if others < 0:
        return "one rank cannot be the first and the last with layers of its own."
    return f"no other rank is there for the {_lost(left)} left, which would lie on no stage."


def _nearest(layers: int, p: int) -> str:
    return f"neither flag with {P}={p}" if p == 1 or layers < p else f"{FIRST}={layers - layers // p * (p - 1)} alone"


def _dividing(given: dict[str, int], left: int, others: int) -> str:
    """Each flag alone changed by the fewest layers."""
    over = left % others
    found = [f"{flag}={count + over}" for flag, count in given.items()]
    return " or ".join(found or [f"{FIRST}={left - left // others * (others - 1)}"])
