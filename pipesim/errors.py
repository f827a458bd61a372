"""What a user reads when something is wrong: one short message, an exit code, no traceback for a mistake of theirs."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipesim.checks import suggest

OK, FAILED, MISTAKE, STOPPED = 0, 1, 2, 130


class FailedPoints(Exception):
    """A study was written, but some of its points failed; the message counts them."""


class Stopped(Exception):
    """A study was stopped before it was whole; ``folder`` keeps what is done, if anything is. ``code`` is the exit code."""

    def __init__(self, message: str, folder: Path | None, code: int) -> None:
        super().__init__(message)
        self.folder, self.code = folder, code


def guarded(main: Callable[[], None]) -> int:
    """Runs ``main`` and returns the exit code: 0 all went well, 1 something failed, 2 the user's mistake, 130 stopped.

    SIGTERM stops it as Ctrl-C does.
    Hydra is told to raise instead of printing; with HYDRA_FULL_ERROR=1 in the environment everything is raised.
    """
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        main()
        return OK
    os.environ["HYDRA_FULL_ERROR"] = "1"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our signs shows others
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
        sys.stdout.flush()
    except Stopped as error:
        print(f"error: {error}" if error.code == FAILED else error, file=sys.stderr)
        if error.folder is not None:
            print(f"Go on with it: {_again(error.folder)}", file=sys.stderr)
        return error.code
    except FailedPoints as error:
        print(f"error: {_shown(str(error))}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader of our output went away; the study was written before it was printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("stopped; nothing was written.", file=sys.stderr)
        return STOPPED
    except Exception as error:
        message = explain(error, sys.argv[1:])
        if message is None and isinstance(error, OSError):
            print(_shown(f"error: {error.filename or 'the output'}: {error.strerror}"), file=sys.stderr)
            return FAILED
        if message is None:
            raise
        print("\n".join(f"error: {line}" for line in _shown(message).split("\n") if line.strip()), file=sys.stderr)
        return MISTAKE
    finally:
        del os.environ["HYDRA_FULL_ERROR"]
    return OK


def _shown(text: str) -> str:
    """As a terminal may have it: names from elsewhere can hold what it would obey."""
    from pipesim.report.formats import clean

    return clean(text)


def _again(folder: Path) -> str:
    """The command that goes on with a study: the one that began it, and where."""
    begun = [word for word in sys.argv[1:] if not word.startswith(("resume=", "study.dir="))]
    return shlex.join(["python", sys.argv[0], *begun, f"resume={folder}"])


def explain(error: Exception, typed: Sequence[str] = ()) -> str | None:
    """The message for a user's mistake; ``None`` if the error is a fault of ours. ``typed`` are the overrides."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    related = (error.__cause__, error, error.__context__)
    causes = [each for each in related if isinstance(each, OmegaConfBaseException) and (each.full_key or each.key)]
    if causes:
        file = re.match(r"In '(.*?)': \w+ raised while composing", str(error))
        return (f"{file[1]}.yaml: " if file else "") + _config_key(causes[0], typed)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return _group_choice(error)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _hydra(str(error))
    if type(error).__module__.startswith("pipesim") and isinstance(error, ValueError):
        return str(error)
    if _raised_by_hydra(error):
        words = f"cannot be composed: {' '.join(typed) or 'what was asked'}. {_hydra(str(error))}"
        if "Unexpected type" in words:
            words += ". A key lies inside one that is null: choose that first, as experiment=execute for keys of task.execute."
        return words
    return None


def _raised_by_hydra(error: Exception) -> bool:
    """Hydra and OmegaConf meet some odd overrides, such as a key inside a null one, with errors of any type."""
    frames = list(traceback.walk_tb(error.__traceback__))
    inside = str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""
    return inside.split(".")[0] in ("hydra", "omegaconf")


def _config_key(error: Any, typed: Sequence[str]) -> str:
    """A key that the schema lacks, or a value of the wrong type."""
    from pipesim.config import Config

    key = error.full_key or str(error.key)
    schema = error.object_type if dataclasses.is_dataclass(error.object_type) else Config if "." not in key else None
    fields = [field.name for field in dataclasses.fields(schema)] if schema else []
    last = key.rsplit(".", 1)[-1]
    if fields and last not in fields:
        return f"{key} is no key of the config; there are: {', '.join(fields)}.{_ending(key) or suggest(last, fields)}"
    said = str(error.msg or error).splitlines()[0]
    if odd := re.fullmatch(
        r"Value (.+) (?:of type '\w+' could not be converted to|is not a valid) (\w+)(?: .*)?", said
    ):
        return f"{key}={odd[1]} must be {_KINDS.get(odd[2], odd[2])}."
    words = next((words for pattern, words in _TYPES.items() if re.match(pattern, said)), None)
    if words is None:
        return f"{key}: {said}."
    given = next((word.partition("=")[2] for word in typed if word.partition("=")[0].lstrip("+") == key), "")
    return f"{key}={given} {words}".replace("KEY", key).replace("VALUE", given)


def _ending(word: str) -> str:
    """Where a word alone is the last part of longer keys, the shortest of those as the nearest."""
    from pipesim.config import keys

    longer = sorted((key for key in keys() if key.endswith(f".{word}")), key=lambda key: key.count("."))
    return f" Nearest: {' or '.join(longer[:MOST_NEAR])}." if longer else ""


MOST_NEAR = 3
"""Keys that are told as the nearest."""

_TYPES = {
    r"Invalid value assigned: \w+ is not a ListConfig|Cannot merge DictConfig with ListConfig": "must be a list, in brackets even "
    "of a single value. Nearest: KEY=[VALUE].",
    r"field '.*' is not Optional": "cannot be null. Nearest: leave it out for its usual value.",
    r"Cannot convert '(?:list|dict)' to string": "must be one word.",
}
"""How OmegaConf's words about a wrong type begin, and ours."""

_KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}


def _group_choice(error: Any) -> str:
    group, _, wanted = (error.missing_cfg_file or "").rpartition("/")
    options = sorted(error.options or [])
    if not options:
        return _hydra(str(error))
    return f"{group}={wanted} is no choice; there are: {', '.join(options)}.{suggest(wanted, options)}"


def _hydra(message: str) -> str:
    """Hydra's own words, without its hint about stack traces; its advice on commas in ours."""
    from pipesim.config import Config

    if several := re.match(
        r"(?:Ambiguous value for argument|Sweep parameters) '(.*?)'(?:\n| require)", message, re.DOTALL
    ):
        key, _, value = several[1].partition("=")
        listed = "" if "(" in value else f" If it is one value that is a list, write {key}=[{value}]."
        return f"{several[1]} holds several values: add -m to have a row for each.{listed}"
    if bare := re.match(r"Error parsing override '(.*?)'\s+missing EQUAL", message, re.DOTALL):
        return f"{bare[1]} is no override: one is written KEY=VALUE, as parallel.t=4. --help shows every group."
    first = message.strip().splitlines()
    groups = [field.name for field in dataclasses.fields(Config)] + ["experiment"]
    named = message.split("'")[1] if "Could not override '" in message or "Could not find '" in message else ""
    return " ".join(line.strip() for line in first if line.strip()) + (
        _ending(named) or suggest(named, groups) if named else ""
    )
