"""Keeps configs data: nothing that a user's words or files say runs code, reads the environment or moves Hydra's output.

Hydra builds its launcher, sweeper, callbacks and loggers from the config while it starts, before any of our code sees it.
So words and files are read before Hydra does, and of Hydra's own keys they may hold only those of ``HYDRA_KEYS``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf.errors import OmegaConfBaseException
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from pipesim import inputs
from pipesim.checks import Invalid

BUILDS = ("_target_", "_args_", "_recursive_", "_convert_", "_partial_")
"""Keys with which Hydra makes objects."""

HYDRA_KEYS = re.compile(r"hydra\.(mode|verbose|sweeper\.params(\.[\w.@/]+)?)")
SWEEPERS = ("pipesim", "basic")

LONGEST_WORD, MOST_WORDS, DEEPEST = 100_000, 10_000, 50
"""Characters of one word of the command line, words, and brackets inside each other."""

MOST_FILES, MOST_FILE_BYTES, MOST_NODES = 10_000, 2**20, 100_000
"""Files of ``--config-dir``, bytes of one, and values in one with its aliases written out."""

_NO_CODE = f"{', '.join(BUILDS)} make objects of code, and no config of pipesim has them. Leave it out."
_NO_HYDRA = (
    "of Hydra's own keys only hydra.mode, hydra.verbose, hydra.sweeper.params and "
    f"hydra/sweeper={'|'.join(SWEEPERS)} can be set: others can run code or write elsewhere."
)
_NO_RESOLVER = "${name:…} is not resolved, for it reads what is no config. Nearest: ${GROUP.KEY}."


def own_configs(arguments: Sequence[str]) -> list[str]:
    """The words of a command line that name a folder of the user's own configs, as they were typed."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    folder = parser.parse_known_args(list(arguments))[0].config_dir
    return [] if folder is None else ["--config-dir", folder]


def own_files(arguments: Sequence[str], overrides: Sequence[str]) -> dict[str, bytes]:
    """The user's own files that overrides choose, and those of their groups that they name: ``conf/GROUP/NAME.yaml`` -> bytes.

    ``arguments`` are a command line, whose ``--config-dir`` has been found safe.
    """
    folder, found = Path(own[1]) if (own := own_configs(arguments)) else None, dict[str, bytes]()
    waiting = [word.partition("=")[::2] for word in overrides] if folder is not None else []
    while waiting:
        group, name = waiting.pop()
        key = f"conf/{group}/{name}.yaml"
        path = (folder or Path()) / group / f"{name}.yaml"
        if key in found or not re.fullmatch(r"\w+/[\w.-]+", f"{group}/{name}") or not path.is_file():
            continue
        found[key] = path.read_bytes()
        waiting += [(group, each) for _, each in _values(yaml.safe_load(found[key])) if isinstance(each, str)]
    return found


def refuse_unsafe(arguments: Sequence[str]) -> None:
    """Raises ``Invalid`` for a command line, without the program's name, that could do more than choose values."""
    from hydra._internal.utils import get_args_parser

    if problems := [problem for word in arguments[:MOST_WORDS] for problem in _word(word)][:10]:
        raise Invalid(problems)
    asked = get_args_parser().parse_args(list(arguments))
    if len(arguments) > MOST_WORDS:
        problems.append(f"the command line has {len(arguments):,} words; at most {MOST_WORDS:,} are read.")
    if asked.experimental_rerun is not None:
        problems.append("--experimental-rerun loads a pickle, which can run code. Type the overrides again.")
    if asked.config_path is not None or asked.config_name is not None:
        problems.append("--config-path and --config-name replace pipesim's own config. Nearest: --config-dir DIR.")
    problems += [f"{word[:200]}: {_NO_HYDRA}" for word in asked.overrides if not _leaves_hydra_alone(word)]
    if problems:
        raise Invalid(problems)
    if asked.config_dir is not None:
        refuse_unsafe_files(Path(asked.config_dir))


def refuse_unsafe_files(folder: Path) -> None:
    """Raises ``Invalid`` for a folder of configs with a file that could do more than choose values, or cannot be read."""
    problems = (
        [f"--config-dir={folder}: a folder hydra cannot be there; {_NO_HYDRA}"] if (folder / "hydra").exists() else []
    )
    for number, path in enumerate(sorted(folder.rglob("*.yaml"))):
        if number == MOST_FILES:
            problems.append(f"--config-dir={folder} holds more than the {MOST_FILES:,} files that are read.")
            break
        problems += [f"{path}: {problem}" for problem in _file(path)]
    if problems:
        raise Invalid(problems)


def refuse_code(own: Any) -> None:
    """Raises ``Invalid`` for keys of a config that make objects, and for references that read what is no config.

    ``own`` is a whole config without Hydra's part, as plain mappings and lists, unresolved.
    """
    problems = []
    for key, value in _values(own):
        if key.rsplit(".", 1)[-1] in BUILDS:
            problems.append(f"{key}: {_NO_CODE}")
        elif isinstance(value, str) and resolves(value):
            problems.append(f"{key}={value[:200]}: {_NO_RESOLVER}")
    if problems:
        raise Invalid(problems)


def resolves(text: str) -> bool:
    """Whether a text holds a resolver, ``${name:…}``, however it is nested. What looks like one and cannot be parsed does.

    >>> resolves("${model.name}: ${parallel.t}"), resolves("${oc.env:HOME}"), resolves("${${a}:HOME}")
    (False, True, True)
    """
    if "${" not in text or ":" not in text.split("${", 1)[1]:
        return False
    try:
        trees: list[Any] = [parse(text)]
    except (OmegaConfBaseException, RecursionError):
        return True
    while trees:
        tree = trees.pop()
        if isinstance(tree, OmegaConfGrammarParser.InterpolationResolverContext):
            return True
        trees += getattr(tree, "children", None) or []
    return False


def _word(word: str) -> Iterator[str]:
    if len(word) > LONGEST_WORD:
        yield f"{word[:40]}… has {len(word):,} characters; at most {LONGEST_WORD:,} are read."
    elif any(0xD800 <= ord(sign) < 0xE000 for sign in word):
        yield f"{word[:200]!r} is no text in UTF-8."
    elif _depth(word) > DEEPEST:
        yield f"{word[:40]}… has more than {DEEPEST} brackets inside each other."
    elif any(key in word for key in BUILDS):
        yield f"{word[:200]}: {_NO_CODE}"
    elif resolves(word):
        yield f"{word[:200]}: {_NO_RESOLVER}"


def _leaves_hydra_alone(word: str) -> bool:
    key, _, value = word.partition("=")
    if "hydra" not in key.lower():
        return True
    if key == "hydra/sweeper":
        return value in SWEEPERS
    return HYDRA_KEYS.fullmatch(key.lstrip("+~")) is not None


def _file(path: Path) -> Iterator[str]:
    try:
        text = inputs.read_text(path, MOST_FILE_BYTES)
        content = yaml.safe_load(text)
        values = list(_values(content))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        yield f"cannot be read: {' '.join(str(getattr(error, 'strerror', None) or error).split())}."
        return
    if any("hydra" in line.lower() for line in text.splitlines() if "@package" in line):
        yield f"its @package is Hydra's; {_NO_HYDRA}"
    for key, value in values:
        last = key.rsplit(".", 1)[-1]
        if last in BUILDS:
            yield f"{key}: {_NO_CODE}"
        elif isinstance(value, str) and resolves(value):
            yield f"{key}={value[:200]}: {_NO_RESOLVER}"
        elif key.startswith("defaults."):
            chosen = f"{key} {value}".lower()
            if "hydra" in chosen and not re.fullmatch(
                rf"defaults\.\d+\.override /?hydra/sweeper ({'|'.join(SWEEPERS)})", chosen
            ):
                yield f"{key}={value}: {_NO_HYDRA}"
        elif key.split(".")[0] == "hydra" and not HYDRA_KEYS.fullmatch(key):
            yield f"{key}: {_NO_HYDRA}"


def _values(content: Any) -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key; an empty mapping or list is one. ``ValueError`` if they are too many."""
    waiting: list[tuple[str, Any]] = [("", content)]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        key, value = waiting.pop()
        if isinstance(value, dict | list) and value:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{key}.{name}" if key else str(name), each) for name, each in pairs]
        else:
            yield key, value
    raise ValueError(f"it holds more than the {MOST_NODES:,} values that are read")


def _depth(word: str) -> int:
    depth = deepest = 0
    for sign in word:
        depth += (sign in "[{(") - (sign in "]})")
        deepest = max(deepest, depth)
    return deepest
