"""What a study can be besides layouts and demos: validation, calibration, profiling, execution."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipesim.report.document import Document
from pipesim.results.schema import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task's report, its rows for ``results.parquet``, and other files of the study by name.

    ``measured`` are the columns of ``results.measured``, of a task that can be swept. ``words`` ask for what was read, with
    the study's own ``conf/`` beside ours.
    """

    document: Document
    rows: list[Row] = field(default_factory=list)
    files: dict[str, str | bytes] = field(default_factory=dict)
    measured: dict[str, float | bool] = field(default_factory=dict)
    words: tuple[str, ...] = ()


SWEPT = ("execute",)
"""Tasks of which many points make one study."""

Task = Callable[[Mapping[str, Any]], Done]


def chosen(config: Mapping[str, Any]) -> str | None:
    """The one task that a plain config asks for, if any."""
    asked = [name for name, conf in (config["task"] or {}).items() if conf is not None]
    return asked[0] if asked else None


def run(config: Mapping[str, Any]) -> Done:
    """Does the task that the config asks for: the function of its name in its folder's ``task``, imported only now."""
    name = chosen(config)
    assert name is not None
    task: Task = getattr(importlib.import_module(f"pipesim.tasks.{name}.task"), name)
    return task(config)
