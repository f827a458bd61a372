"""The schemas of ``conf/engine/`` and of ``study``: where a study is made, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class EngineConf:
    """Where the parts of a sweep are worked on, see ``pipesim/engines/README.md``.

    ``workers`` null is one for each core, ``address`` null starts a cluster on this machine. ``cluster`` (slurm or local),
    ``partition``, ``folder`` and ``timeout_min`` are submitit's. A worker's death is forgiven ``retries`` times.
    """

    name: str = MISSING
    workers: int | None = None
    address: str | None = None
    cpus_per_point: int = 1
    gpus_per_point: float = 0.0
    retries: int = 3
    cluster: str | None = None
    partition: str | None = None
    folder: str | None = None
    timeout_min: int = 1440


@dataclass
class StudyConf:
    """Where the study goes: ``dir`` is the folder itself, else ``outputs/NAME`` with a number where that is taken.

    ``details`` (columns of every rank and stage) and ``csv`` left null are there while the study is small enough.
    ``figures`` are the formats of its pictures: svg in any case, png and pdf on request. ``dry_run`` counts what is asked
    and what breaks which rule, and writes nothing. ``tracker`` mlflow logs the study to the server or folder
    ``tracker_uri`` too.
    """

    dir: str | None = None
    name: str | None = None
    details: bool | None = None
    csv: bool | None = None
    figures: list[str] = field(default_factory=lambda: ["svg"])
    dry_run: bool = False
    tracker: str | None = None
    tracker_uri: str | None = None
