"""The rows of a group of points, filled column by column: refused, failed, or evaluated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipesim import legality
from pipesim.calibrate import intervals
from pipesim.costs.columns import FloatArray, distinct
from pipesim.estimate import COMPUTE_ITEMS, MEMORY_ITEMS, TIME_ITEMS, Batch, Points
from pipesim.launch import rules
from pipesim.plan.asked.groups import Group
from pipesim.point_id import ASKED, leaves
from pipesim.results.schema import SCHEMA
from pipesim.schedules import canonical_name
from pipesim.schedules.action import IntArray
from pipesim.specs import Point

_BOUNDS = {
    **dict.fromkeys((*COMPUTE_ITEMS, "optimizer"), "compute"),
    "tp": "tp", "cp": "cp", "ep": "ep", "vocab": "vocab", "imbalance": "imbalance", "bubble": "bubble",
    "pp_exposed": "pp", "dp_exposed": "dp", "fixed": "compute",
}  # fmt: skip
_VERDICTS = (*dict.fromkeys(_BOUNDS[item] for item in TIME_ITEMS), "memory")
_DEGREES = ("t", "p", "v", "c", "e", "d")
_STATUS = ("invalid", "ok", "infeasible", "failed")


class Rows:
    """n rows of a group. What no method fills is empty; a row that nothing is said of is invalid."""

    def __init__(self, group: Group) -> None:
        n = len(group.at)
        self._group = group
        self._status = np.zeros(n, np.int8)
        self._reasons = np.full(n, None, object)
        self._known = _known(group)
        self._evaluated = np.zeros(n, np.bool_)
        self._columns: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._status)

    def refuse(self, at: IntArray, problems: NDArray[np.object_]) -> None:
        """``problems`` (n,) holds the text of every row."""
        self._reasons[at] = problems[at]

    def fail(self, at: IntArray, reason: str) -> None:
        self._status[at], self._reasons[at] = _STATUS.index("failed"), reason

    def derive(self, at: IntArray, numbers: dict[str, IntArray]) -> None:
        """What of the numbers was not given but follows."""
        for name in ("d", "v", "seq_length"):
            filled, mask = np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
            filled[at], mask[at] = numbers[name], numbers[name] != legality.NONE
            self._known[name] = pc.if_else(pa.array(mask), pa.array(filled), self._known[name])

    def fill(self, at: IntArray, points: Points, batch: Batch, details: bool) -> None:
        """What an evaluation says of the rows ``at``."""
        like = points.like
        seconds = {f"{item}_s": batch.seconds[item] for item in TIME_ITEMS}
        held = {f"{item}_bytes": batch.bytes[item] for item in MEMORY_ITEMS}
        step_s, memory, limit = (
            np.asarray(sum(seconds.values())),
            np.asarray(sum(held.values())),
            batch.columns.get("memory_limit_bytes", np.full(len(at), like.cluster.memory_bytes)),
        )
        limit_part = batch.placed.get("limit_part", np.zeros(len(at), np.int64))
        fits = memory <= limit
        self._status[at] = np.where(fits, _STATUS.index("ok"), _STATUS.index("infeasible"))
        self._reasons[at[~fits]] = _shortfalls(
            like, batch.columns["heaviest_rank"][~fits], memory[~fits], limit_part[~fits]
        )
        self._evaluated[at] = True
        self._put(at, {**batch.columns, **seconds, **held})
        self._put(at, _interval(like, step_s, memory))
        self._put(at, {
            "gpus": np.reshape(points.cut.gpus, -1).astype(np.int64)[points.cell_of],
            "schedule_options": _all(json.dumps(dict(like.options)) if like.options else None, at),
            "warning": _warnings(points, batch),
            "model_state_bytes": held["weights_bytes"] + held["gradients_bytes"] + held["optimizer_bytes"],
            "memory_bytes": memory,
            "memory_limit_bytes": limit,
            "fits": fits,
            "step_time_s": step_s,
            "verdict": _verdicts(batch, fits),
        })  # fmt: skip
        if details:
            self._put(
                at, {"stage_units": _objects([list(points.shapes[k].units) for k in points.shape_of[points.cell_of]])}
            )

    def table(self) -> pa.Table:
        known = None if self._evaluated.all() else pa.array(self._evaluated).buffers()[1]
        filled = {name: _arrow(name, values, known) for name, values in self._columns.items()}
        status = pa.DictionaryArray.from_arrays(pa.array(self._status), list(_STATUS)).cast(pa.string())
        reasons = pa.array(self._reasons, pa.string())
        have = {**self._known, **filled, "status": status, "reason": reasons}
        assert not have.keys() - set(SCHEMA.names), (
            f"columns without a schema: {sorted(have.keys() - set(SCHEMA.names))}"
        )
        arrays = [have[field.name] if field.name in have else pa.nulls(len(self), field.type) for field in SCHEMA]
        return pa.table(arrays, schema=SCHEMA)

    def _put(self, at: IntArray, columns: dict[str, Any]) -> None:
        for name, values in columns.items():
            each = values if isinstance(values, np.ndarray) else _objects(values)
            if len(at) == len(self):
                self._columns[name] = each
                continue
            if name not in self._columns:
                self._columns[name] = (
                    np.full(len(self), None, object) if each.dtype == object else np.zeros(len(self), each.dtype)
                )
            self._columns[name][at] = each


def _arrow(name: str, values: NDArray[Any], known: pa.Buffer | None) -> pa.Array:
    """``known`` are bits, of which rows a number is valid."""
    kind = SCHEMA.field(name).type
    if values.dtype == object:
        return pa.array([_plain(value) for value in values] if pa.types.is_list(kind) else values, kind)
    return pa.Array.from_buffers(kind, len(values), [known, pa.array(values, kind).buffers()[1]])


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _objects(values: list[Any]) -> NDArray[np.object_]:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _all(value: str | None, at: IntArray) -> NDArray[np.object_]:
    return np.full(len(at), value, object)


def _known(group: Group) -> dict[str, pa.Array]:
    """Who the points are and what was asked, even of those that cannot be built."""
    config, n = group.config, len(group.at)
    name = config["schedule"]["name"]
    told = dict(leaves({key: config[key] for key in ASKED})) if group.told else {}
    words = {
        "model": config["model"]["name"],
        "cluster": config["cluster"]["name"],
        "stack": config["stack"]["name"],
        "costs": config["costs"]["kind"],
        "schedule": canonical_name(name) or name,
        "settings": " ".join(f"{key}={_brief(told[key])}" for key in group.told) or None,
        **{key: config["parallel"][key] for key in ("zero", "sequence_parallel")},
        **{key: config["training"][key] for key in ("recompute", "precision", "attention")},
    }
    found = {key: pa.repeat(pa.scalar(_fitting(value), SCHEMA.field(key).type), n) for key, value in words.items()}
    context = pa.scalar(_fitting(config["model"]["context"]), pa.int64())
    lengths = group.shown["seq_length"].fill_null(context)
    return {**found, **group.shown, "seq_length": lengths, "point_id": _hexadecimal(group.point_hashes)}


def _brief(value: Any) -> str:
    """Without blanks, which stand between settings; the parts of a cluster by their names."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and "nodes" in part for part in value):
        value = [f"{part['nodes']}x{part['cluster']['name']}" for part in value]
    return str(value).replace(", ", ",") if isinstance(value, list) else str(value)


def _fitting(value: Any) -> Any:
    """None for a whole number that no column can hold."""
    return None if isinstance(value, int) and abs(value) >= 2**63 else value


def _hexadecimal(hashes: NDArray[np.uint64]) -> pa.Array:
    """As 16 digits each."""
    digits = hashes.astype(">u8").tobytes().hex().encode()
    ends = np.arange(0, len(digits) + 1, 16, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(hashes), [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def _interval(like: Point, step_s: FloatArray, memory: FloatArray) -> dict[str, Any]:
    """How far both may be off, where validation supports an interval."""
    found = intervals.interval(like, step_s, memory)
    if found is None:
        return {}
    return {
        "step_time_lo_s": found.step_time_lo_s,
        "step_time_hi_s": found.step_time_hi_s,
        "memory_lo_bytes": found.memory_lo_bytes,
        "memory_hi_bytes": found.memory_hi_bytes,
        "extrapolates": np.full(len(step_s), found.note or None, object),
    }


def _shortfalls(like: Point, ranks: IntArray, memory: FloatArray, limit_part: IntArray) -> NDArray[np.object_]:
    """Why points do not fit; in columns, since a grid may have millions of them."""
    limits = _limits(like)
    limit = np.array([size for size, _ in limits])[limit_part]
    missing = [_gigabytes(size) if size < 1e8 else "" for size in (memory - limit).tolist()]
    parts = (
        "does not fit: rank ", pa.array(ranks).cast(pa.string()), " needs ", _tenths(memory), " GB, ",
        pc.if_else(pa.array(memory - limit < 1e8), pa.array(missing), _tenths(memory - limit)),
        " GB more than ", pa.array([said for _, said in limits]).take(pa.array(limit_part)),
    )  # fmt: skip
    return np.asarray(pc.binary_join_element_wise(*parts, "").to_numpy(zero_copy_only=False), object)


def _limits(like: Point) -> list[tuple[float, str]]:
    """What a GPU of each part holds, and the key that says so."""
    parts = like.cluster.parts
    if not parts:
        return [(like.cluster.memory_bytes, f"cluster.memory_gb={like.cluster.memory_bytes / 1e9:g}.")]
    return [
        (each.memory_bytes, f"memory_gb={each.memory_bytes / 1e9:g} of cluster.parts[{index}], {each.name}.")
        for index, each in enumerate(part.cluster for part in parts)
    ]


def _tenths(size: FloatArray) -> pa.Array:
    """Bytes in GB with one digit behind the point."""
    whole, tenth = (pa.array(part).cast(pa.string()) for part in np.divmod(np.round(size / 1e8).astype(np.int64), 10))
    return pc.binary_join_element_wise(whole, tenth, ".")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2g}"


def _warnings(points: Points, batch: Batch) -> NDArray[np.object_]:
    """What is unwise of each point's schedule, placement and length, and what the framework of its stack cannot run."""
    like = points.like
    shape_of = points.shape_of[points.cell_of]
    first, which = distinct([shape_of, points.num_microbatches])
    sizes = [(points.shapes[shape_of[i]], int(points.num_microbatches[i])) for i in first]
    unwise = [legality.warning_of(like.schedule, like.options, shape.p, m, shape.v) for shape, m in sizes]
    said = [np.array([*unwise, None], object)[which]]
    if "unwise" in batch.placed:
        said.append(_objects([*batch.placed["unwise"]]))
    if (long := _too_long(points)) is not None:
        said.append(long)
    if (refused := _refused(points)) is not None:
        said.append(refused)
    if len(said) == 1:
        return said[0]
    return _objects([" ".join(filter(None, each)) or None for each in zip(*said, strict=True)])


def _too_long(points: Points) -> NDArray[np.object_] | None:
    """Of each point whether its sequences are longer than the model's context; None where none are."""
    lengths, context = np.reshape(points.cut.seq_length, -1).astype(np.int64)[points.cell_of], points.like.model.context
    if not (lengths > context).any():
        return None
    return _objects(
        [
            f"training.seq_length={length} exceeds model.context={context}, which frameworks may refuse. Nearest: "
            f"model.context={length}."
            if length > context
            else None
            for length in lengths.tolist()
        ]
    )


def _refused(points: Points) -> NDArray[np.object_] | None:
    """Of each point what its stack's framework cannot run; None where it runs them all."""
    like, cut, of = points.like, points.cut, points.cell_of
    numbers = {
        name: np.reshape(getattr(cut, name), -1).astype(np.int64)[of]
        for name in (*_DEGREES, "micro_batch", "seq_length")
    }
    numbers["global_batch"] = points.num_microbatches * numbers["micro_batch"] * numbers["d"]
    refused = np.flatnonzero(~rules.allowed(like, numbers))
    if not len(refused):
        return None
    first, which = distinct([values[refused] for values in numbers.values()])
    found = np.full(len(points), None, object)
    found[refused] = np.array([*(_problems(like, numbers, refused[i]) for i in first), None], object)[which]
    return found


def _problems(like: Point, numbers: dict[str, IntArray], at: int) -> str:
    each = {name: int(values[at]) for name, values in numbers.items()}
    layout = replace(like.layout, **{name: each.pop(name) for name in _DEGREES})  # type: ignore[arg-type]
    return " ".join(rules.problems(replace(like, layout=layout, training=replace(like.training, **each))))  # type: ignore[arg-type]


def _verdicts(batch: Batch, fits: NDArray[np.bool_]) -> NDArray[np.object_]:
    """The largest share of the step; the first named wins a tie."""
    shares = np.zeros((len(_VERDICTS) - 1, len(fits)))
    for item in TIME_ITEMS:
        shares[_VERDICTS.index(_BOUNDS[item])] += batch.seconds[item]
    return np.array(_VERDICTS, object)[np.where(fits, shares.argmax(axis=0), _VERDICTS.index("memory"))]
