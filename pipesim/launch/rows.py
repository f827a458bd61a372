"""Tables of (a framework's name for a setting, our config key), read in both directions so that they cannot drift apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipesim.launch.values import Values


class _Ask:
    """Stands for no value: what is absent is unknown."""


ASK: Any = _Ask()


FROM_0 = ("parallel.zero", "model.moe.shared_experts", "model.moe.dense_layers")
"""Numbers that can be 0."""


class Row(NamedTuple):
    """``words`` are ours -> theirs (None: a whole number, the same on both sides); ``absent`` is ours where theirs is not
    given, and is not written.
    """

    name: str
    key: str
    words: Mapping[Any, Any] | None = None
    absent: Any = ASK


@dataclass(slots=True, kw_only=True)
class Read:
    """What a file of arguments says: ``values`` by config key, the number of ``gpus``, and every name that is something else.

    ``problems`` are what its framework refuses or cannot be read; ``untold`` keys are not said by the file; ``assumed`` are
    sentences about what was taken though something else could have been meant.
    """

    framework: str | None
    values: Values = field(default_factory=dict)
    gpus: int | None = None
    ignored: list[str] = field(default_factory=list)
    by_stack: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def sort_settings(read: Read, rest: Mapping[str, Any], not_ours: tuple[str, ...], by_stack: tuple[str, ...]) -> None:
    """Every name that no table reads goes where its beginning says, or to the unknown with its value."""
    for name, value in rest.items():
        if name.startswith(not_ours):
            read.ignored.append(name)
        elif name.startswith(by_stack):
            read.by_stack.append(name)
        else:
            read.unknown.append(f"{name}={value}")


def theirs(rows: Iterable[Row], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say the values. A value that a row has no word for is not said: see ``without_words``."""
    found: dict[str, Any] = {}
    for row in rows:
        value = values.get(row.key, row.absent)
        if value is row.absent or (row.absent is not ASK and value == row.absent) or value is None:
            continue
        if row.words is None:
            found[row.name] = value
        elif value in row.words:
            found[row.name] = row.words[value]
    return found


def without_words(rows: Iterable[Row], values: Mapping[str, Any]) -> list[str]:
    """What of the values the framework cannot say, a problem each."""
    rows = list(rows)
    problems = []
    for key in dict.fromkeys(row.key for row in rows if row.words is not None):
        known = [word for row in rows if row.key == key for word in (row.words or {})]
        known += [row.absent for row in rows if row.key == key and row.absent is not ASK]
        if key in values and values[key] not in known:
            near = " or ".join(_shown(word) for word in dict.fromkeys(known))
            problems.append(f"{key}={_shown(values[key])} is not there. Nearest: {key}={near}.")
    return problems


def ours(rows: Sequence[Row], given: Mapping[str, Any], read: Read) -> None:
    """Fills ``read`` with what the given settings say. Of several rows for a key the first that is given counts."""
    for row in rows:
        if row.name not in given or row.key in read.values:
            continue
        value, said = given[row.name], f"{row.name}={given[row.name]}"
        if value is True and row.name.startswith("--"):
            said = f"{row.name} without a value"
        if row.words is not None:
            back = [mine for mine, word in row.words.items() if str(word) == str(value)]
            if back:
                read.values[row.key] = back[0]
            else:
                words = " or ".join(str(word) for word in row.words.values())
                read.problems.append(f"{said} is no value that {row.key} has. Nearest: {row.name}={words}.")
        elif (number := whole(value)) is None:
            read.problems.append(f"{said} must be a whole number.")
        elif number < (row.key not in FROM_0):
            read.problems.append(f"{said} must be at least {int(row.key not in FROM_0)}.")
        else:
            read.values[row.key] = number
    for row in rows:
        if row.key not in read.values and row.absent is not ASK:
            read.values[row.key] = row.absent
    asked = {row.key for row in rows} - read.values.keys()
    read.untold += [key for key in dict.fromkeys(row.key for row in rows) if key in asked]


def whole(value: Any) -> int | None:
    """A whole number of at most 12 digits as files write it (1024, "1_024"), or None."""
    text = str(value).replace("_", "")
    if isinstance(value, bool) or len(text) > 12 or not text.isascii() or not text.removeprefix("-").isdigit():
        return None
    return int(text)


def flat(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; lists stay values."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        place = found
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return found


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
