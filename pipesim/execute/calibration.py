"""From what was measured to what the simulator takes: seconds of every stage, and links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipesim.execute.hops import Hop
from pipesim.execute.job import Job
from pipesim.execute.measure import Measured
from pipesim.schedules.action import Op
from pipesim.schedules.transfers import Slot, slots
from pipesim.simulate import Beside, Links, Timeline, simulate
from pipesim.simulate.kernel import FloatArray


class Kind(NamedTuple):
    """Slots that cost the same: one action, or an overlapped pair, of one rank.

    ``works`` has stage, op, sequences and segment of each action.
    """

    rank: int
    works: tuple[tuple[int, Op, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Medians. ``slot_s`` are seconds by kind; the arrays are the simulator's, shape (stages, m)."""

    slot_s: Mapping[Kind, float]
    forward_s: FloatArray
    input_grad_s: FloatArray
    weight_grad_s: FloatArray
    links: Links

    def simulated(self, job: Job) -> Timeline:
        """The job's schedule with these costs."""
        return simulate(job.schedule, self.forward_s, self.input_grad_s, self.weight_grad_s, links=self.links)


def calibrate(measured: Measured) -> Calibration:
    """Medians over repeats and over all slots of a kind.

    A pair's seconds are its first action's, the second takes none; a whole backward's are its input gradient's.
    """
    job, schedule = measured.job, measured.job.schedule
    kinds = {slot: _kind(job, rank, slot) for rank in range(job.p) for slot in slots(schedule, rank)}
    found: dict[Kind, list[float]] = defaultdict(list)
    for slot, kind in kinds.items():
        found[kind] += measured.alone_s[:, slot.actions[0]].tolist()
    slot_s = {kind: float(np.median(seconds)) for kind, seconds in found.items()}
    tables = np.zeros((len(Op), schedule.stages, schedule.m))
    for slot, kind in kinds.items():
        first = slot.actions[0]
        tables[schedule.op[first], schedule.stage[first], schedule.micro_batch[first]] = slot_s[kind]
    return Calibration(
        slot_s=slot_s,
        forward_s=tables[Op.F],
        input_grad_s=tables[Op.I] + tables[Op.B],
        weight_grad_s=tables[Op.W],
        links=_links(measured.hops, job.p),
    )


def beside(measured: Measured, calibration: Calibration) -> Beside:
    """The simulation with the measured costs beside every measured step."""
    return Beside(simulated=calibration.simulated(measured.job), measured=tuple(measured.executed.timelines))


def _kind(job: Job, rank: int, slot: Slot) -> Kind:
    schedule, works = job.schedule, []
    for action in map(schedule.action, slot.actions):
        number, segment = divmod(action.micro_batch, schedule.segments)
        works.append((action.stage, action.op, job.micro_batches[number], segment))
    return Kind(rank, tuple(works))


def _links(hops: Mapping[tuple[int, int], Hop], p: int) -> Links:
    """Alike in both directions. Every message is taken for one of the largest."""
    latency_s, bytes_per_s = np.zeros((p, p)), np.full((p, p), np.inf)
    for pair, hop in hops.items():
        for link in (pair, pair[::-1]):
            latency_s[link] = min(hop.empty_s, hop.full_s)
            if hop.full_s > hop.empty_s:
                bytes_per_s[link] = hop.full_bytes / (hop.full_s - hop.empty_s)
    message_bytes = max((hop.full_bytes for hop in hops.values()), default=0)
    return Links(latency_s=latency_s, bytes_per_s=bytes_per_s, message_bytes=message_bytes)
