"""What the validation of the packaged tables is meant to reach, and what it does: fractions, smaller is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from pipesim.calibrate import after_runs, summary
from pipesim.calibrate.intervals import COVERAGE
from pipesim.calibrate.validate import Validation

PLAIN, SCALED, BY_RELEASE = "step_time", "step_time_scaled", "step_time_by_release"
ONE_RUN, REGRET, MEMORY, OOM, OOM_FAR = "step_time_one_run", "regret", "memory", "oom", "oom_far"
COVERED_TIME, COVERED_MEMORY = "step_time_coverage", "memory_coverage"

WORDS = {
    PLAIN: "step time, mean error",
    SCALED: "step time, mean error after one factor",
    BY_RELEASE: "step time, mean error after a factor for each release",
    ONE_RUN: "step time, mean error after one own run",
    REGRET: "regret of the layout chosen, mean",
    MEMORY: "memory, mean error",
    OOM: "fits or not, share judged wrongly",
    OOM_FAR: f"fits or not, share judged wrongly beyond {100 * summary.NEAR:g} % of the capacity",
    COVERED_TIME: f"step time, how far the share inside its interval is from {100 * COVERAGE:g} %",
    COVERED_MEMORY: f"memory, how far the share inside its interval is from {100 * COVERAGE:g} %",
}

A100_MEAN, DEV_WORST, DEV = "sources on A100, mean", "dev, the worst source of five rows or more", "dev"
FEWEST = 5
"""Rows of a source that is looked at for ``DEV_WORST``."""


class Goal(NamedTuple):
    what: str
    """A key of ``WORDS``."""
    of: str
    """A source or several."""
    most: float


GOALS = (
    Goal(PLAIN, "AlephAlpha-layouts", 0.045), Goal(PLAIN, "ZeroBubble-2024", 0.03), Goal(PLAIN, "vTrain-single", 0.07),
    Goal(PLAIN, "DGXC-v24.11.1", 0.02), Goal(PLAIN, "llm-foundry", 0.04), Goal(PLAIN, "nanotron-playbook, kept", 0.10),
    Goal(PLAIN, "Megatron-A100-2021", 0.04), Goal(SCALED, "Megatron-A100-2021", 0.02),
    Goal(PLAIN, "bigscience-A100", 0.08), Goal(SCALED, "bigscience-A100", 0.05),
    Goal(PLAIN, "VocabParallel-2024", 0.09), Goal(SCALED, "VocabParallel-2024", 0.03),
    Goal(PLAIN, "NeMo-A100", 0.06), Goal(SCALED, "NeMo-A100", 0.05), Goal(BY_RELEASE, "NeMo-A100", 0.05),
    Goal(PLAIN, "DGXC-v25.04.01", 0.03), Goal(SCALED, "DGXC-v25.04.01", 0.025),
    Goal(PLAIN, "torchtitan-2024-A100", 0.12), Goal(SCALED, "torchtitan-2024-A100", 0.06),
    Goal(PLAIN, DEV_WORST, 0.10), Goal(ONE_RUN, DEV_WORST, 0.05),
    Goal(REGRET, A100_MEAN, 0.015), Goal(REGRET, "nanotron-playbook, kept", 0.04),
    Goal(MEMORY, "ZeroBubble-2024", 0.025), Goal(MEMORY, "VocabParallel-2024", 0.025), Goal(MEMORY, "FlagPerf-Paddle", 0.05),
    Goal(MEMORY, "bigscience-A100", 0.06), Goal(MEMORY, "nanotron-playbook", 0.10),
    Goal(OOM, "AlephAlpha-layouts", 0.04), Goal(OOM_FAR, "AlephAlpha-layouts", 0.01), Goal(OOM, "bigscience-A100", 0.04),
    Goal(OOM_FAR, "bigscience-A100", 0.01), Goal(OOM, "nanotron-playbook", 0.04), Goal(OOM_FAR, "nanotron-playbook", 0.01),
    Goal(COVERED_TIME, DEV, 0.05), Goal(COVERED_MEMORY, DEV, 0.05),
)  # fmt: skip

Figures = Mapping[str, Mapping[str, float]]
"""By source and a key of ``WORDS``: ``summary.figures``."""


def reached(validation: Validation, figures: Figures) -> list[tuple[Goal, float]]:
    """Every goal that these rows say something about."""
    known = {(what, of): value for of, each in figures.items() for what, value in each.items()}
    known |= _joined(validation, figures)
    return [(goal, known[goal.what, goal.of]) for goal in GOALS if (goal.what, goal.of) in known]


def _joined(validation: Validation, figures: Figures) -> Iterator[tuple[tuple[str, str], float]]:
    """Figures of several sources, by a goal's ``what`` and ``of``."""
    regrets = [each[REGRET] for source, each in figures.items() if REGRET in each and _on_a100(validation, source)]
    if regrets:
        yield (REGRET, A100_MEAN), float(np.mean(regrets))
    dev = validation.of_role("dev")
    unseen = [each for each in summary.subsets(validation, validation.timed & dev) if each.rows.sum() >= FEWEST]
    if unseen:
        yield (PLAIN, DEV_WORST), max(figures[each.name][PLAIN] for each in unseen)
        runs = [after_runs.after(validation, each.rows).weighed[1][0] for each in unseen]
        yield (ONE_RUN, DEV_WORST), max(runs)
        for key, what, rows in (
            (COVERED_TIME, "step_time", validation.timed), (COVERED_MEMORY, "memory", summary.scored_memory(validation)),
        ):  # fmt: skip
            yield (key, DEV), abs(summary.covered(validation, rows & dev, what) - COVERAGE)
    for each in after_runs.releases(validation):
        if each.release == after_runs.TOGETHER:
            yield (PLAIN, each.source), each.plain.mean
            yield (SCALED, each.source), each.scaled.mean
        elif each.release == after_runs.EACH_ITS_OWN:
            yield (BY_RELEASE, each.source), each.scaled.mean


def _on_a100(validation: Validation, source: str) -> bool:
    chips = {
        each.point.cluster.chip
        for each, timed in zip(validation.measurements, validation.timed, strict=True)
        if timed and each.source == source and each.point is not None
    }
    return bool(chips) and all(chip.startswith("a100") for chip in chips)
