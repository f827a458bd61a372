"""pipesim: how long a training step takes and what each GPU holds, for every way to cut a large model over many GPUs."""

from pipesim.api import (
    Estimate,
    estimate,
    make_schedule,
    plan,
    read_schedule,
    schedule_names,
    simulate,
    steady_period_s,
    sweep,
)

__all__ = [
    "Estimate",
    "estimate",
    "make_schedule",
    "plan",
    "read_schedule",
    "schedule_names",
    "simulate",
    "steady_period_s",
    "sweep",
]
