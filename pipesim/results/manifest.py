"""The manifest of a study: what was asked, with which versions, and the hashes of what came out."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipesim import inputs
from pipesim.results.folder import MANIFEST, UNFINISHED, StudyFolderError

_LIBRARIES = ("pipesim", "hydra-core", "numpy", "numba", "pandas", "pyarrow", "plotly", "matplotlib")


def about(kind: str, overrides: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is, before it is written: ``kind`` is layout, sweep, demo, task or runs, ``config`` the first point's.

    Without the tracker, which decides nothing and whose address may hold a password.
    """
    study = {key: value for key, value in config["study"].items() if not key.startswith("tracker")}
    return {
        "kind": kind,
        "overrides": [word for word in overrides if not word.startswith(("resume", "study.tracker"))],
        "first_point" if kind in ("sweep", "runs") else "config": {**config, "study": study},
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES if _installed(name)},
    }


def complete(about: Mapping[str, Any], folder: Path) -> str:
    """The manifest as JSON text, with the hashes of all files; ``written`` and ``machine`` alone say when and where."""
    files = {
        str(path.relative_to(folder)): _hash(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] != UNFINISHED and path.name != MANIFEST
    }
    when_and_where = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"python": platform.python_version(), "platform": platform.platform()},
    }
    return json.dumps({**about, "files": files, **when_and_where}, indent=2, ensure_ascii=False) + "\n"


def read(folder: Path) -> dict[str, Any]:
    """``StudyFolderError`` unless the folder holds a whole study."""
    try:
        content = json.loads(inputs.read_text(folder / MANIFEST))
    except (OSError, ValueError, RecursionError):
        raise StudyFolderError(f"{folder} holds no study: its {MANIFEST} is missing or damaged.") from None
    if not isinstance(content, dict) or "kind" not in content:
        raise StudyFolderError(f"{folder / MANIFEST} is no manifest of a study.")
    return content


def _hash(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
