"""What kind of run a measurement is of: the classes that a validation is broken down by."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

from pipesim.calibrate.recipes import contradicts_its_stages
from pipesim.calibrate.rows import Measurement
from pipesim.costs import parameters
from pipesim.specs import Point

CLASSES: dict[str, tuple[str, ...]] = {
    "cut": ("with neither", "with tensor", "with pipeline", "with both"),
    "nodes": ("1", "2-8", "9-64", "over 64"),
    "model_size": ("under 1B", "1-10B", "10-100B", "over 100B"),
    "recompute": ("none", "operators", "selective", "full"),
    "schedule": (),
}
"""Class -> its values in the order of tables; a class with none takes them as they come."""

_MEMORY_KINDS = (  # a pattern of the row's source and notes, what was measured
    (r"peak allocated", "allocated (torch)"),
    (r"torchtitan.*memory [\d.]+ GiB", "reserved (torch)"),
    (r"per-stage memory|GB as printed \(README|nvidia-smi", "as the driver reports"),
)
_PRINTED = "as printed, kind not stated"

RELEASES = (r"README \d{4}-\d\d", r"^v\d+\.\d+(?:\.\d+)?", r"NeMo \d\d\.\d\d")
"""How notes name the release of the software, or the dated table that was measured with it."""

STALLING, STALL_GPUS = "nanotron-playbook", 128
STALL_RULE = (
    f"About 30 % of {STALLING}'s rows carry a stall of about a second in every micro-batch that no column explains. Its rows "
    f"are scored whole, and again those that a rule keeps by configuration alone: at most {STALL_GPUS} GPUs, tensor ranks "
    "inside one node, no pipeline. The rule was chosen by how often such "
    "configurations stall; it looks at no row's time."
)


def classes(measurement: Measurement) -> dict[str, str]:
    """Value of every class, by its name; nothing for a row without a point."""
    point = measurement.point
    return {} if point is None else {name: classify(point) for name, classify in _OF.items()}


def memory_kind(measurement: Measurement) -> str:
    """What the source's figure counts: torch's tensors, its cache, or all that the driver sees."""
    text = f"{measurement.source} {measurement.cells['notes']}"
    return next((kind for pattern, kind in _MEMORY_KINDS if re.search(pattern, text)), _PRINTED)


def prints_first_rank(measurement: Measurement) -> bool:
    """Whether the source prints what the pipeline's first rank holds, and not the heaviest: where the two differ by
    more than 3 %, nanotron's rows lie 6 % (median) beside the first and 27 % beside the heaviest.
    """
    return measurement.source == STALLING


def release(measurement: Measurement) -> str:
    """The release that the row's source states; empty where it states none."""
    found = (re.search(pattern, measurement.cells["notes"]) for pattern in RELEASES)
    return next((each[0] for each in found if each), "")


def kept(measurement: Measurement) -> bool:
    """What ``STALL_RULE`` says; rows of every other source are kept."""
    point = measurement.point
    if measurement.source != STALLING or point is None:
        return True
    inside = point.layout.t <= point.cluster.gpus_per_node
    return point.layout.p == 1 and inside and point.cluster.gpus <= STALL_GPUS


def is_moe(measurement: Measurement) -> bool:
    return measurement.cells["moe_experts"] not in ("", "n/a")


def is_narrow(measurement: Measurement) -> bool:
    """fp8 or fp4, whose extra kernels and buffers are hardly known."""
    return bool(re.search(r"fp[84]", measurement.cells["precision"].lower()))


def is_special(measurement: Measurement) -> bool:
    """Does what no estimate covers."""
    return bool(re.search(r"offload|LoRA", measurement.cells["notes"]))


def contradicts_itself(measurement: Measurement) -> bool:
    """Its stages hold what the recomputation that it states would not keep."""
    return measurement.point is not None and contradicts_its_stages(measurement.point, measurement.cells["notes"])


def _cut(point: Point) -> str:
    names = ("with neither", "with tensor", "with pipeline", "with both")
    return names[(point.layout.t > 1) + 2 * (point.layout.p > 1)]


def _nodes(point: Point) -> str:
    nodes = -(-point.cluster.gpus // point.cluster.gpus_per_node)
    return CLASSES["nodes"][bisect_left((1, 8, 64), nodes)]


def _model_size(point: Point) -> str:
    return CLASSES["model_size"][bisect_left((1e9, 1e10, 1e11), parameters.total_parameters(point.model))]


_OF: dict[str, Callable[[Point], str]] = {
    "cut": _cut,
    "nodes": _nodes,
    "model_size": _model_size,
    "recompute": lambda point: point.training.recompute,
    "schedule": lambda point: point.schedule,
}
