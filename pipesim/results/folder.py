"""The folder of a study: built aside and moved into place whole, so that a half-written one never looks finished."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MANIFEST = "manifest.json"


class StudyFolderError(ValueError):
    """A study's folder cannot be made, written or read; the message says why."""


class Staging:
    """Where a study is being written; ``final`` is set once it stands in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.final: Path | None = None

    def write(self, name: str, content: str | bytes) -> None:
        target = inside(self.path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


def inside(folder: Path, name: str) -> Path:
    """The path of a study's file. ``StudyFolderError`` if it lies elsewhere: a study may come from others, links and all."""
    target = folder / name
    if not target.parent.resolve().is_relative_to(folder.resolve()) or ".." in target.name:
        raise StudyFolderError(f"{target} cannot be written: it does not lie in {folder}.")
    return target


def replace(target: Path, text: str) -> None:
    """Writes a file anew, whole or not at all; a link there is replaced, not followed. ``StudyFolderError`` if it cannot."""
    fresh = target.with_name(f".{target.name}.fresh")
    try:
        target.parent.mkdir(exist_ok=True)
        fresh.unlink(missing_ok=True)
        with fresh.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
        fresh.replace(target)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise StudyFolderError(f"{target} cannot be written: {error.strerror}.") from None


def slug(name: str, longest: int = 60) -> str:
    """A folder name from any text: letters of every script, digits, dots, dashes; never empty, never hidden.

    >>> slug('BLOOM "176B"/试验')
    'BLOOM-176B-试验'
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-._")[:longest].strip("-._") or "study"


@contextmanager
def new_study(root: Path, name: str, chosen: str | None) -> Iterator[Staging]:
    """A staging folder that becomes ``chosen``, or ``root/NAME`` with a number where that is taken, when all went well.

    Raises ``StudyFolderError`` if the folder holds something already, or cannot be written. What was staged is removed
    when anything fails.
    """
    try:
        target = None if chosen is None else Path(chosen).expanduser().absolute()
        if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StudyFolderError(
                f"study.dir={chosen} exists and is not an empty folder. Choose another; nothing was changed."
            )
        parent = root if target is None else target.parent
        made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        staging = Staging(Path(tempfile.mkdtemp(prefix=".partial-", dir=parent)))
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, StudyFolderError):
            raise
        where = root if chosen is None else f"study.dir={chosen}"
        reason = getattr(error, "strerror", None) or error
        raise StudyFolderError(f"{where} cannot be written: {reason}. Choose another with study.dir=PATH.") from None
    try:
        staging.path.chmod(0o777 & ~_umask())
        yield staging
        _sync(staging.path)
        staging.final = _claim(staging.path, target or parent / slug(name), numbered=target is None)
    except OSError as error:
        raise StudyFolderError(
            f"the study could not be written to {parent}: {error.strerror}. Nothing was kept."
        ) from error
    finally:
        if staging.final is None:
            shutil.rmtree(staging.path, ignore_errors=True)
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()


def _claim(staged: Path, wanted: Path, *, numbered: bool) -> Path:
    """Moves the folder to ``wanted``, ``wanted-2``, …: a rename fails where another study already stands."""
    number = 1
    while True:
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            staged.rename(target)
        except OSError:
            if not target.exists() or not numbered:
                raise
            number += 1
        else:
            return target


def _sync(folder: Path) -> None:
    """Everything on the disk before the move makes it visible; a full disk shows here at the latest."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
