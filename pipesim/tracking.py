"""Logs a written study to a tracker, if ``study.tracker`` chooses one: MLflow, imported only then.

Nothing of it stands in the study: neither the choice nor the address, which may hold a password.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipesim.checks import Invalid, suggest
from pipesim.errors import FailedPoints

TRACKERS = ("mlflow",)
EXPERIMENT = "pipesim"
ARTEFACTS = ("report.html", "report.md", "results.parquet", "measured.csv", "manifest.json")
METRICS = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "hfu", "memory_bytes", "bubble_fraction",
    "measured_makespan_s", "measured_makespan_lo_s", "measured_makespan_hi_s", "measured_bubble_fraction",
)  # fmt: skip
"""Columns of the best layout's row that fits, and of a run's measurement."""
PARAMS = ("model", "cluster", "stack", "costs", "gpus", "schedule", "t", "p", "d", "micro_batch", "global_batch")
"""Columns of the same row."""
LONGEST = 500
"""Characters of a parameter that every MLflow server takes."""


def check(study: Mapping[str, Any]) -> None:
    """Before anything is worked on. Raises ``Invalid`` if the tracker is unknown, not installed, or has no address."""
    tracker, uri = study["tracker"], study["tracker_uri"]
    if tracker is None:
        return
    if tracker not in TRACKERS:
        raise Invalid(
            [f"study.tracker={tracker} must be null or one of {', '.join(TRACKERS)}.{suggest(tracker, TRACKERS)}"]
        )
    if importlib.util.find_spec("mlflow") is None:
        raise Invalid(
            [
                "study.tracker=mlflow needs mlflow-skinny, which is not installed. Install it: pip install 'pipesim[mlflow]'."
            ]
        )
    if uri is None and not os.environ.get("MLFLOW_TRACKING_URI"):
        raise Invalid(
            [
                "study.tracker=mlflow needs an address: study.tracker_uri=file:///PATH or http://HOST:PORT, or MLFLOW_TRACKING_URI."
            ]
        )


def log(
    study: Mapping[str, Any], about: Mapping[str, Any], best: Mapping[str, Any], counts: Mapping[str, int], folder: Path
) -> None:
    """One run for the study: what was asked as parameters, the best layout and the counts as metrics, its files.

    ``best`` is empty where nothing fits. Raises ``FailedPoints`` if the tracker refuses; the study is written by then.
    """
    if study["tracker"] is None:
        return
    params = {name: best[name] for name in PARAMS if best.get(name) is not None} | {"kind": about["kind"]}
    typed = (word.lstrip("+~").partition("=") for word in about["overrides"])
    params |= {key: value for key, _, value in typed}
    metrics = {name: float(best[name]) for name in METRICS if best.get(name) is not None}
    metrics |= {f"points_{status}": float(count) for status, count in counts.items()}
    try:
        _mlflow(study["tracker_uri"], params, metrics, folder)
    except Exception as error:  # whatever a server, a proxy or a disk says
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FailedPoints(f"the study stands in {folder}, but study.tracker=mlflow did not take it: {said}") from error


def _mlflow(uri: str | None, params: Mapping[str, Any], metrics: Mapping[str, float], folder: Path) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use over the network
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions want to be told that files are meant
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
    run = client.create_run(experiment, run_name=folder.name).info.run_id
    try:
        client.log_batch(
            run,
            metrics=[Metric(name, value, 0, 0) for name, value in sorted(metrics.items())],
            params=[Param(name, str(value)[:LONGEST]) for name, value in sorted(params.items())],
        )
        for name in ARTEFACTS:
            if (folder / name).is_file():
                client.log_artifact(run, str(folder / name))
    except BaseException:
        client.set_terminated(run, status="FAILED")
        raise
    client.set_terminated(run)
