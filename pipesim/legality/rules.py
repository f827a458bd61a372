"""Which layouts keep the rules. Every broken rule is named with its config key, its value and the nearest that works."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim import schedules
from pipesim.checks import MOST_LISTED, divisors, listed, nearest_divisors
from pipesim.costs.columns import distinct
from pipesim.costs.kernels import FLASH_KERNELS
from pipesim.costs.stage import balanced_partition
from pipesim.schedules.remembered import remembered
from pipesim.specs import Point

_LECTURE = "costs.kind=lecture cuts the model into equal blocks"

Numbers = Mapping[str, NDArray[np.int64]]
"""Columns t, p, d, c, e, v, micro_batch, global_batch and seq_length; d is 0 where none can be derived."""


class Rule(NamedTuple):
    """``problems`` finds what is wrong with one point, and depends on the named numbers and on words alone.

    ``holds``, where there is one, says the same of many at once.
    """

    numbers: tuple[str, ...]
    problems: Callable[[Point], list[str]]
    holds: Callable[[Point, Numbers], Any] | None = None


def _degrees(point: Point) -> list[str]:
    """Asked with a whole ``d``, or with none where none can be derived."""
    layout, gpus = point.layout, point.cluster.gpus
    degrees = {"t": layout.t, "p": layout.p} | ({"c": layout.c} if layout.c > 1 else {})
    if layout.d is not None:
        degrees["d"] = layout.d
        if math.prod(degrees.values()) <= gpus:
            return []
        most = {key: gpus * degree // math.prod(degrees.values()) for key, degree in degrees.items()}
        first = {"d": [most["d"]]} if most["d"] else {key: [size] for key, size in most.items()}
        nearest = _nearest(degrees, first, lambda cut: math.prod(cut) <= gpus)
        return [f"{_product(degrees)} = {math.prod(degrees.values())} needs more than cluster.gpus={gpus}. {nearest}"]
    cut = math.prod(degrees.values())
    nearest = _nearest(degrees, {key: list(divisors(gpus)) for key in degrees}, lambda cut: gpus % math.prod(cut) == 0)
    return [
        f"{_product(degrees)} = {cut} does not divide cluster.gpus={gpus}, so no whole parallel.d is left. {nearest}"
    ]


def _enough_gpus(like: Point, numbers: Numbers) -> Any:
    cut = 1.0 * numbers["t"] * numbers["p"] * numbers["c"]  # products of whole numbers may not fit into 64 bits
    return (numbers["d"] > 0) & (cut * numbers["d"] <= like.cluster.gpus)


def _product(degrees: Mapping[str, int]) -> str:
    return " x ".join(f"parallel.{key}={size}" for key, size in degrees.items())


def _nearest(
    degrees: Mapping[str, int], candidates: Mapping[str, Sequence[int]], holds: Callable[[list[int]], bool]
) -> str:
    """What to change: for each degree alone the candidates around it with which the rule holds; if none does, all to 1."""
    found = []
    for key, size in degrees.items():
        works = [n for n in candidates.get(key, ()) if n > 0 and holds([*({**degrees, key: n}).values()])]
        around = [n for n in works if n < size][-1:] + [n for n in works if n > size][:1]
        if around:
            found.append(f"parallel.{key}={' or '.join(map(str, around))}")
    return f"Nearest: {', or '.join(found) or _product(dict.fromkeys(degrees, 1))}."


def _lecture(point: Point) -> list[str]:
    if point.costs.kind != "lecture":
        return []
    asked, plain = point.layout, {"c": 1, "e": 1, "shard": None, "spread_vocab": "none"}
    return [
        f"parallel.{key}={getattr(asked, key)}: costs.kind=lecture knows t, p and d alone. "
        f"Nearest: parallel.{key}={'null' if value is None else value}."
        for key, value in plain.items()
        if getattr(asked, key) != value
    ]


def _tensor(point: Point) -> list[str]:
    model, t = point.model, point.layout.t
    problems = []
    for key, size in (("heads", model.heads), ("ffn", model.ffn), ("vocab", model.vocab)):
        if size % t:
            nearest = nearest_divisors(size, t)
            problems.append(f"parallel.t={t} does not divide model.{key}={size}. Nearest: parallel.t={nearest}.")
    return problems + _sequence(point) + _ulysses(point)


def _sequence(point: Point) -> list[str]:
    """Context parallelism divides the sequence, and sequence parallelism what is left of it."""
    length = _seq_length(point)
    degrees = {"c": point.layout.c} | ({"t": point.layout.t} if point.layout.sequence_parallel else {})
    if length % math.prod(degrees.values()) == 0:
        return []
    nearest = _nearest(
        degrees, {key: list(divisors(length)) for key in degrees}, lambda cut: length % math.prod(cut) == 0
    )
    why = " with parallel.sequence_parallel=true" if point.layout.sequence_parallel else ""
    return [f"{_product(degrees)} does not divide training.seq_length={length}{why}. {nearest}"]


def _ulysses(point: Point) -> list[str]:
    """Each context rank attends with its share of the heads that tensor parallelism leaves (Jacobs et al. 2023)."""
    degrees, heads = {"t": point.layout.t, "c": point.layout.c}, point.model.heads
    if point.layout.context != "ulysses" or heads % degrees["t"] or heads % math.prod(degrees.values()) == 0:
        return []
    nearest = _nearest(
        degrees, {key: list(divisors(heads)) for key in degrees}, lambda cut: heads % math.prod(cut) == 0
    )
    return [f"{_product(degrees)} does not divide model.heads={heads} with parallel.context=ulysses. {nearest}"]


def _shard(point: Point) -> list[str]:
    layout = point.layout
    if layout.shard is None:
        return []
    problems = []
    if layout.zero == 0:
        problems.append(
            f"parallel.shard={layout.shard} says how many ranks share what parallel.zero divides, and parallel.zero=0 divides "
            "nothing. Nearest: parallel.zero=1, or parallel.shard=null."
        )
    if layout.d is not None and (layout.d * layout.c) % layout.shard:
        problems.append(
            f"parallel.shard={layout.shard} does not divide parallel.d={layout.d} x parallel.c={layout.c}. "
            f"Nearest: parallel.shard={nearest_divisors(layout.d * layout.c, layout.shard)}."
        )
    return problems


def _experts(point: Point) -> list[str]:
    layout, moe = point.layout, point.model.moe
    e = layout.e
    if e == 1:
        return []
    if moe is None:
        return [
            f"parallel.e={e} needs a mixture of experts, and model.name={point.model.name} has none. Nearest: parallel.e=1."
        ]
    problems = []
    if moe.experts % e:
        nearest = nearest_divisors(moe.experts, e)
        problems.append(
            f"parallel.e={e} does not divide model.moe.experts={moe.experts}. Nearest: parallel.e={nearest}."
        )
    if layout.d is not None and (layout.d * layout.c) % e:
        nearest = nearest_divisors(layout.d * layout.c, e)
        problems.append(
            f"parallel.e={e} does not divide parallel.d={layout.d} x parallel.c={layout.c}, whose ranks share the experts. "
            f"Nearest: parallel.e={nearest}."
        )
    return problems


def _partition(point: Point) -> list[str]:
    layout = point.layout
    units, partition = point.model.units, layout.partition
    assert layout.v is not None
    degrees = {"p": layout.p, "v": layout.v}
    stages = layout.p * layout.v
    whole = f"{units} units (embedding, {point.model.layers} layers, head)"
    if stages > units:
        most = {"p": [units // layout.v], "v": [units // layout.p]}
        nearest = _nearest(degrees, most, lambda cut: math.prod(cut) <= units)
        return [f"{_product(degrees)} makes {stages} stages, but model.name={point.model.name} has {whole}. {nearest}"]
    if not isinstance(partition, str):
        problems = _explicit_partition(partition, units, degrees, whole)
        if point.costs.kind == "lecture" and len(set(partition)) > 1:
            problems.append(f"parallel.partition={listed(partition)} is uneven; {_LECTURE}. {_balanced(units, stages)}")
        return problems
    if units % stages and (partition == "even" or point.costs.kind == "lecture"):
        divides = list(divisors(units))
        nearest = _nearest(degrees, {"p": divides, "v": divides}, lambda cut: units % math.prod(cut) == 0)
        why = f"{_LECTURE} and" if point.costs.kind == "lecture" else "parallel.partition=even"
        return [f"{_product(degrees)} does not divide {whole}; {why} needs that. {nearest}"]
    return []


def _explicit_partition(partition: Sequence[int], units: int, degrees: Mapping[str, int], whole: str) -> list[str]:
    problems = []
    stages = math.prod(degrees.values())
    named, nearest = f"parallel.partition={listed(partition)}", _balanced(units, stages)
    if len(partition) != stages:
        problems.append(
            f"{named} has {len(partition)} entries, but {_product(degrees)} makes {stages} stages. {nearest}"
        )
    if sum(partition) != units:
        problems.append(
            f"{named} places {sum(partition)} units, but the model has {whole}{_lost(partition, units)}. {nearest}"
        )
    return problems


def _balanced(units: int, stages: int) -> str:
    """In full where that is short enough to type."""
    return f"Nearest: {list(balanced_partition(units, stages)) if stages <= MOST_LISTED else 'balanced'}."


def _lost(partition: Sequence[int], units: int) -> str:
    """Which units a partition leaves on no stage, the last ones; nothing where it has too many."""
    first, layers = sum(partition), units - 2
    if first >= units:
        return ""
    lost = {0: "the embedding and all layers", 1: "all layers"}.get(first, f"layers {first - 1} to {layers - 1}")
    if first >= layers:
        lost = f"layer {layers - 1}" if first == layers else ""
    return f"; {f'{lost} and ' if lost else ''}the head would be on no stage"


def _batch(point: Point) -> list[str]:
    batch, micro, d = point.training.global_batch, point.training.micro_batch, point.layout.d
    if d is None or batch % (micro * d) == 0:
        return []
    below, above = batch // (micro * d) * micro * d, -(-batch // (micro * d)) * micro * d
    nearest = f"Nearest: training.global_batch={' or '.join(str(b) for b in (below, above) if b)}"
    if batch % d == 0:
        nearest += f", or training.micro_batch={nearest_divisors(batch // d, micro)}"
    return [f"training.micro_batch={micro} x parallel.d={d} does not divide training.global_batch={batch}. {nearest}."]


def _batch_divides(_: Point, numbers: Numbers) -> Any:
    per_step = 1.0 * numbers["micro_batch"] * numbers["d"]
    return (numbers["d"] == 0) | (numbers["global_batch"] % np.maximum(per_step, 1.0) == 0)


def _order(point: Point) -> list[str]:
    batch, micro, d = point.training.global_batch, point.training.micro_batch, point.layout.d
    m = max(1, batch // (micro * (d or 1)))
    broken = _order_problems(point.schedule, point.layout.p, m, point.layout.v, point.options)
    is_ours = f"num_microbatches is training.global_batch={batch} / (training.micro_batch={micro} x parallel.d={d})."
    return [f"{each} {is_ours}" if "num_microbatches" in each else each for each in broken]


@remembered(maxsize=100_000)
def _order_problems(
    name: str, p: int, m: int, v: int | None, options: tuple[tuple[str, int | float | str], ...]
) -> list[str]:
    return schedules.problems(name, p, m, v, **dict(options))


def _can_be_ordered(like: Point, numbers: Numbers) -> Any:
    """Asked once for all points of the same p, m and v."""
    per_step = 1.0 * numbers["micro_batch"] * np.maximum(numbers["d"], 1)
    m = np.maximum(numbers["global_batch"] // per_step, 1).astype(np.int64)
    columns = [numbers["p"], m, numbers["v"]]
    first, which = distinct(columns)
    sizes = zip(*(column[first].tolist() for column in columns), strict=True)
    holds = [not _order_problems(like.schedule, p, m, v, like.options) for p, m, v in sizes]
    return np.array(holds, np.bool_)[which]


def _training(point: Point) -> list[str]:
    problems = []
    precision, peaks = point.training.precision, point.cluster.peak_flops_per_s
    if precision not in peaks:
        problems.append(
            f"training.precision={precision} has no cluster.peak_tflops on cluster.name={point.cluster.name}. "
            f"Nearest: {' or '.join(peaks)}."
        )
    attention, kernels = point.training.attention, point.cluster.flash_efficiency
    if attention in FLASH_KERNELS and attention not in kernels:
        problems.append(
            f"training.attention={attention} has no cluster.flash_efficiency on cluster.name={point.cluster.name}. "
            f"Nearest: {' or '.join((*kernels, 'unfused'))}."
        )
    if point.model.positions == "learned" and _seq_length(point) > point.model.context:
        problems.append(
            f"training.seq_length={_seq_length(point)} exceeds the learned positions, model.context={point.model.context}. "
            f"Nearest: model.context={_seq_length(point)}, or training.seq_length={point.model.context}."
        )
    return problems


def _recompute(point: Point) -> list[str]:
    again, stages = point.training.recompute_layers, point.layout.p * (point.layout.v or 1)
    if again is None:
        return []
    named = f"training.recompute_layers={listed(again) if isinstance(again, tuple) else again}"
    problems = []
    if point.training.recompute == "none":
        problems.append(
            f"{named} says which layers run again, and training.recompute=none runs none. "
            "Nearest: training.recompute=full, or training.recompute_layers=null."
        )
    if isinstance(again, tuple) and len(again) != stages:
        problems.append(
            f"{named} has {len(again)} entries, but parallel.p={point.layout.p} x parallel.v={point.layout.v} makes {stages} "
            f"stages. Nearest: {[*again, *[again[-1] if again else 0] * stages][:stages] if stages <= MOST_LISTED else 'null'}."
        )
    return problems


def _seq_length(point: Point) -> int:
    return point.training.seq_length or point.model.context


RULES = (
    Rule(("t", "p", "c", "d"), _degrees, _enough_gpus),
    Rule(("c", "e"), _lecture),
    Rule(("t", "c", "seq_length"), _tensor),
    Rule(("d", "c"), _shard),
    Rule(("d", "c", "e"), _experts, lambda _, numbers: numbers["e"] == 1),
    Rule(("p", "v"), _partition),
    Rule(("seq_length",), _training),
    Rule(("p", "v"), _recompute),
    Rule(("micro_batch", "d", "global_batch"), _batch, _batch_divides),
    Rule(("p", "v", "micro_batch", "d", "global_batch"), _order, _can_be_ordered),
)
"""In the order in which they are told."""
