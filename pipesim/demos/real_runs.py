"""The run of ``real_pipeline``: one step of the base model, cut into stages that really run, beside the uncut step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesim.checks import Invalid
from pipesim.schedules import Schedule, make_schedule
from pipesim.simulate import peak_held

if TYPE_CHECKING:
    from pipesim.execute.job import Job

NEEDED = ("torch", "safetensors")
"""What the extra ``execute`` installs."""

NUMBER_BYTES = 4
"""Activations, gradients and parameters are float32."""

INSTALL, INSTALL_CHECKOUT = "pip install 'pipesim[execute]'", "pip install -e '.[execute]'"

MODES = ("threads", "processes")


class NotInstalled(Invalid):
    """``package`` is missing; the message says how to install it."""

    def __init__(self, package: str) -> None:
        super().__init__(
            [
                f"demo.real_pipeline really runs a model and needs {package}, which is not installed. "
                f"Install it: {INSTALL}, or in a checkout: {INSTALL_CHECKOUT}."
            ]
        )
        self.package = package


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """What the two steps gave. ``units`` and ``parameters`` are per stage; a unit is embedding, ``blocks.K`` or head.

    Losses are in nats per character, gradients absolute. ``forward_bytes`` and ``backward_bytes`` were counted as they
    were sent, over all cuts; ``peak_inflight`` was counted too, ``simulated_inflight`` is what the order says.
    """

    schedule: str
    micro_batches: int
    micro_batch: int
    length: int
    width: int
    units: tuple[tuple[str, ...], ...]
    parameters: tuple[int, ...]
    base_loss: float
    unigram_entropy: float
    cut_loss: float
    uncut_loss: float
    cut_gradient: float
    uncut_gradient: float
    largest_difference: float
    forward_bytes: int
    backward_bytes: int
    peak_inflight: tuple[int, ...]
    simulated_inflight: tuple[int, ...]

    @property
    def p(self) -> int:
        return len(self.units)

    @property
    def sequences(self) -> int:
        """Of the whole batch."""
        return self.micro_batches * self.micro_batch

    @property
    def activation_bytes(self) -> int:
        """By formula: what crosses all cuts in one direction in one step."""
        return (self.p - 1) * self.sequences * self.length * self.width * NUMBER_BYTES

    @property
    def all_reduce_bytes(self) -> int:
        """One gradient for each parameter."""
        return sum(self.parameters) * NUMBER_BYTES


def run_real(conf: Mapping[str, Any]) -> RealRun:
    """Loads or trains the base model, which stays as it is, and takes one step of each run from a copy of its weights.

    Raises ``Invalid`` for sizes that cannot run and ``NotInstalled`` for a package that must be installed first.
    """
    schedule = _schedule(conf)
    try:
        return _run(conf, schedule)
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise NotInstalled(error.name) from None


def _schedule(conf: Mapping[str, Any]) -> Schedule:
    """The demo counts what crosses each cut, so a stage has a rank of its own."""
    name, problems = conf["schedule"], []
    for key in ("micro_batch", "length"):
        if conf[key] < 1:
            problems.append(f"{key}={conf[key]} must be at least 1. Nearest: 1.")
    if conf["mode"] not in MODES:
        problems.append(f"mode={conf['mode']!r} must be one of {', '.join(MODES)}. Nearest: {MODES[0]}.")
    try:
        schedule = make_schedule(name, p=conf["p"], m=conf["micro_batches"])
    except ValueError as error:
        problems += str(error).splitlines()
    else:
        if schedule.segments > 1 or not np.array_equal(schedule.stage, schedule.rank_of()):
            problems.append(f"schedule={name} must give each rank one stage and whole sequences. Nearest: 1f1b.")
    if problems:
        raise Invalid([f"demo.real_pipeline: {problem}" for problem in problems])
    return schedule


def _run(conf: Mapping[str, Any], schedule: Schedule) -> RealRun:
    from pipesim.execute.job import Job, problems
    from pipesim.execute.reference import reference
    from pipesim.execute.run import execute
    from pipesim.toy.base_model import load_or_train_base_model, text_batch

    base = load_or_train_base_model()
    shape: dict[str, Any] = {"model": base.model.spec, "length": conf["length"]}
    cut = Job(schedule=schedule, micro_batches=(conf["micro_batch"],) * schedule.m, **shape)
    if found := problems(cut):
        raise Invalid([f"demo.real_pipeline: {problem}" for problem in found])
    whole = Job(schedule=make_schedule("gpipe", p=1, m=1), micro_batches=(cut.sequences,), **shape)
    state = {name: parameter.clone() for name, parameter in base.model.named_parameters()}
    batches = [text_batch(cut.sequences, conf["length"], conf["seed"])[None]]
    done = execute(cut, state, batches, mode=conf["mode"])
    uncut = reference(whole, state, batches)
    return RealRun(
        schedule=schedule.name,
        micro_batches=schedule.m,
        micro_batch=conf["micro_batch"],
        length=conf["length"],
        width=base.model.spec.width,
        units=cut.units,
        parameters=_parameters(cut, state),
        base_loss=base.loss,
        unigram_entropy=base.unigram_entropy,
        cut_loss=done.losses[0],
        uncut_loss=uncut.losses[0],
        cut_gradient=_largest(done.gradients.values()),
        uncut_gradient=_largest(uncut.gradients.values()),
        largest_difference=_largest(done.gradients[name] - uncut.gradients[name] for name in state),
        forward_bytes=sum(sent for (source, target), sent in done.link_bytes.items() if source < target),
        backward_bytes=sum(sent for (source, target), sent in done.link_bytes.items() if source > target),
        peak_inflight=tuple(done.peak_live),
        simulated_inflight=tuple(peak_held(schedule, [1] * schedule.stages).astype(int).tolist()),
    )


def _parameters(cut: Job, state: Mapping[str, Any]) -> tuple[int, ...]:
    """Of each stage."""
    from pipesim.execute.partition import parameter_names

    names = [[name for unit in units for name in parameter_names(cut.model, unit)] for units in cut.units]
    return tuple(sum(state[name].numel() for name in each) for each in names)


def _largest(tensors: Iterable[Any]) -> float:
    return max(float(tensor.abs().max()) for tensor in tensors)
