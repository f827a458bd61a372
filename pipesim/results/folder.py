"""The folder of a study: never in another's way, never looking finished before it is; whole, or with what is done kept."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MANIFEST = "manifest.json"
UNFINISHED = "unfinished"
"""The subfolder of what is done of a study that is being made; it goes when the manifest comes."""


class StudyFolderError(ValueError):
    """A study's folder cannot be made, written or read; the message says why."""


class Staging:
    """Where a study is being written; ``final`` is set once it stands in its place, whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.final: Path | None = None

    @property
    def unfinished(self) -> Path:
        return self.path / UNFINISHED

    def write(self, name: str, content: str | bytes) -> None:
        target = inside(self.path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def finish(self, manifest: str) -> None:
        """Makes it a study: the manifest comes when everything else is safe on the disk."""
        _sync(self.path)
        durable(self.path / MANIFEST, lambda fresh: fresh.write_text(manifest, encoding="utf-8", newline=""))
        shutil.rmtree(self.unfinished, ignore_errors=True)


def inside(folder: Path, name: str) -> Path:
    """The path of a study's file. ``StudyFolderError`` if it lies elsewhere: a study may come from others, links and all."""
    target = folder / name
    if not target.parent.resolve().is_relative_to(folder.resolve()) or ".." in target.name:
        raise StudyFolderError(f"{target} cannot be written: it does not lie in {folder}.")
    return target


def replace(target: Path, content: str | bytes) -> None:
    """Writes a file anew, whole or not at all; a link there is replaced, not followed. ``StudyFolderError`` if it cannot."""
    try:
        target.parent.mkdir(exist_ok=True)
        durable(target, lambda fresh: fresh.write_bytes(content.encode() if isinstance(content, str) else content))
    except OSError as error:
        raise StudyFolderError(f"{target} cannot be written: {error.strerror}.") from None


def durable(target: Path, write: Callable[[Path], object]) -> None:
    """What ``write`` puts in a file becomes ``target``, whole or not at all, even if power is lost at any moment."""
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        write(fresh)
        sync(fresh)
        fresh.replace(target)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    sync(target.parent)


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
    with _writable(root, chosen):
        target = _free(chosen)
        parent = root if target is None else target.parent
        made = _make(parent)
        staging = Staging(Path(tempfile.mkdtemp(prefix=".partial-", dir=parent)))
    try:
        staging.path.chmod(0o777 & ~_umask())
        yield staging
        _sync(staging.path)
        staging.final = _claim(staging.path.rename, target or parent / slug(name), numbered=target is None)
        sync(parent)
    except OSError as error:
        raise StudyFolderError(
            f"the study could not be written to {parent}: {error.strerror}. Nothing was kept."
        ) from error
    finally:
        if staging.final is None:
            shutil.rmtree(staging.path, ignore_errors=True)
            _unmake(made)


@contextmanager
def kept_study(root: Path, name: str, chosen: str | None, resume: str | None) -> Iterator[Staging]:
    """A study that stands in its place from the start, with what is done in ``unfinished/`` until it is whole.

    The folder is chosen as by ``new_study``; ``resume`` is one that was begun, and is begun if it is not there. One
    process at a time: ``StudyFolderError`` says who has it. What has come into ``unfinished/parts`` is kept whatever
    happens; where nothing has, nothing is left.
    """
    with _writable(root, chosen if resume is None else resume):
        target = _free(chosen) if resume is None else Path(resume).expanduser().absolute()
        if resume is not None and target is not None and not (target / UNFINISHED).is_dir():
            _free(resume, "resume")
        made = _make(root if target is None else target)
        if target is None:
            target = _claim(Path.mkdir, root / slug(name), numbered=True)
            made = [target, *made]
        parts = target / UNFINISHED / "parts"
        parts.mkdir(parents=True, exist_ok=True)
    staging = Staging(target)
    with _locked(target / UNFINISHED / "lock", target):
        try:
            yield staging
            staging.final = target
        except OSError as error:
            raise StudyFolderError(
                f"the study could not be written to {target}: {error.strerror}. What is done is kept: resume={target}."
            ) from error
        finally:
            if staging.final is None and not any(parts.iterdir()):
                shutil.rmtree(staging.unfinished, ignore_errors=True)
                _unmake(made)


@contextmanager
def _writable(root: Path, chosen: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, StudyFolderError):
            raise
        where = root if chosen is None else f"study.dir={chosen}"
        reason = getattr(error, "strerror", None) or error
        raise StudyFolderError(f"{where} cannot be written: {reason}. Choose another with study.dir=PATH.") from None


def _free(chosen: str | None, key: str = "study.dir") -> Path | None:
    target = None if chosen is None else Path(chosen).expanduser().absolute()
    if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        begun = " It holds a study that was begun: resume=PATH goes on." if (target / UNFINISHED).is_dir() else ""
        other = "Choose another; " if key == "study.dir" else "It holds no study that was begun; "
        raise StudyFolderError(f"{key}={chosen} exists and is not an empty folder. {other}nothing was changed.{begun}")
    return target


def _make(folder: Path) -> list[Path]:
    """Makes it, and says which folders are new, the innermost first."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _unmake(made: list[Path]) -> None:
    with suppress(OSError):
        for folder in made:
            folder.rmdir()


def _claim(take: Callable[[Path], object], wanted: Path, *, numbered: bool) -> Path:
    """Takes ``wanted``, ``wanted-2``, …: ``take`` fails where another study already stands."""
    number = 1
    while True:
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            take(target)
        except OSError:
            if not target.exists() or not numbered:
                raise
            number += 1
        else:
            return target


@contextmanager
def _locked(path: Path, study: Path) -> Iterator[None]:
    """Held by one process; the system lets it go when that ends, however it ends."""
    with path.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StudyFolderError(
                f"{study} is being written by another process ({lock.read().strip() or 'unknown'}). Wait until it has ended."
            ) from None
        if not path.exists():
            raise StudyFolderError(f"{study} was finished by another process just now.")
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        lock.flush()
        yield


def _sync(folder: Path) -> None:
    """Everything on the disk before the move makes it visible; a full disk shows here at the latest."""
    for path in (folder, *folder.rglob("*")):
        if UNFINISHED not in path.relative_to(folder).parts:
            sync(path)


def sync(path: Path) -> None:
    """Puts a file, or a folder's list of names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
