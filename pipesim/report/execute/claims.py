"""What can be said of a schedule that really ran, sentence by sentence, and only where the run bears it out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.report.execute.facts import Agreement, Execution
from pipesim.report.formats import show

CLOSE = 0.10
"""An error of the makespan below this share is called close."""


def claims(execution: Execution) -> Iterator[str]:
    """Those that hold."""
    yield from _close(execution)
    yield from _same_cause(execution)
    yield from _held(execution)
    yield from _sent(execution)
    for agreement in execution.agreements:
        yield from _agrees(agreement)


def _close(execution: Execution) -> Iterator[str]:
    errors = np.abs(execution.beside.errors)
    if np.median(errors) < CLOSE and execution.processes <= execution.cores:
        yield (
            f"The predicted makespan is within {show(CLOSE, 'percent')} of the measured one in the median of "
            f"{len(errors)} runs."
        )


def _same_cause(execution: Execution) -> Iterator[str]:
    """What costs most idle time, over all ranks."""
    lines = execution.beside.idle()
    if not lines:
        return
    causes = sorted({line.cause for line in lines})
    simulated_s = [sum(line.simulated_s for line in lines if line.cause == cause) for cause in causes]
    measured_s = [sum(line.measured_s for line in lines if line.cause == cause) for cause in causes]
    most = int(np.argmax(simulated_s))
    if most == int(np.argmax(measured_s)):
        yield f"Most idle time has one cause in both, predicted and measured: {causes[most]}."


def _held(execution: Execution) -> Iterator[str]:
    if execution.peaks == execution.simulated_peaks:
        held = ", ".join(map(str, execution.peaks))
        yield f"Counted while it ran, the ranks held at most {held} activations at once: exactly what is simulated."


def _sent(execution: Execution) -> Iterator[str]:
    traffic = execution.traffic
    if traffic and all(each.counted_bytes == each.expected_bytes for each in traffic):
        total = f"{sum(each.counted_bytes for each in traffic):,}"
        yield f"Every link carried exactly the bytes that the schedule says, {total} in all in a step."


def _agrees(agreement: Agreement) -> Iterator[str]:
    if agreement.gradient_error == 0:
        yield f"Every bit of every gradient is that of {agreement.with_whom}."
    elif agreement.gradient_error <= agreement.tolerance:
        yield (
            f"No gradient differs from that of {agreement.with_whom} by more than "
            f"{show(agreement.gradient_error, 'number')} of its largest element."
        )
