"""Flags in a shell script or a pasted command line: assignments and arrays are followed, nothing is run."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from pipesim.checks import Invalid

MOST_CHARACTERS = 1_000_000
"""Of a script, and of its words once variables stand for what they hold."""

_NAME = r"[A-Za-z_]\w*"
_VARIABLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(?:\[[@*]\])?(?::?-([^}}]*))?\}})")
_SUM = re.compile(r"\d{1,12}(?:(?:[*/]\d{1,12}){0,9}|(?:[+-]\d{1,12}){0,9})")
_UNKNOWN = "$COMMAND"


class Flag(NamedTuple):
    """``--name value …`` or ``--name=value``; underscores are read as dashes."""

    name: str
    values: tuple[str, ...]


def flags(text: str) -> list[Flag]:
    """Every flag in order, with variables that the script itself assigns put in. Raises ``Invalid`` for what is no shell."""
    if len(text) > MOST_CHARACTERS:
        raise Invalid([f"it holds {len(text):,} characters; at most {MOST_CHARACTERS:,} are read."])
    found: list[Flag] = []
    for word in _words(text):
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-") if name.startswith("--") else "-"
            found.append(Flag(name, (value,) if equals else ()))
        elif found:
            found[-1] = found[-1]._replace(values=(*found[-1].values, word))
    return [flag for flag in found if flag.name != "-"]


def unresolved(flag: Flag) -> bool:
    """Whether a value is a variable that the script does not assign."""
    return any("$" in value for value in flag.values)


def _words(text: str) -> list[str]:
    """The words of the commands, or of all arrays and texts where no command has a flag."""
    known: dict[str, str] = {}
    commands: list[str] = []
    tokens = _tokens(text)
    at = 0
    while at < len(tokens):
        assigned = re.fullmatch(rf"({_NAME})(\+?)=(.*)", tokens[at], re.DOTALL)
        at += 1
        if assigned is None:
            commands += _split(_put_in(tokens[at - 1], known))
            continue
        name, more, value = assigned.groups()
        value = value.removesuffix(";")
        if not value and at < len(tokens) and tokens[at] == "(":
            end = next((k for k in range(at, len(tokens)) if tokens[k] == ")"), len(tokens))
            value = " ".join(word if "$" in word else shlex.quote(word) for word in tokens[at + 1 : end])
            at = end + 1
        known[name] = _bounded(f"{known.get(name, '')} " * bool(more) + _put_in(value, known))
    _bounded(" ".join(commands))
    if any(word.startswith("--") for word in commands):
        return commands
    return [word for value in known.values() for word in _split(value)]


def _tokens(text: str) -> list[str]:
    text = re.sub(r"(?m)(^|\s)#.*$", r"\1", text.replace("\r\n", "\n"))
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"\$\(\(([^()]*)\)\)", lambda found: "$[" + re.sub(r"\s", "", found[1]) + "]", text)
    for _ in range(10):
        text, more = re.subn(r"\$\([^()]*\)|`[^`]*`", _UNKNOWN, text)
        if not more:
            break
    lexer = shlex.shlex(text, posix=True, punctuation_chars="()")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError as error:
        raise Invalid([f"it is no shell script that can be read: {str(error).lower()}."]) from None


def _put_in(word: str, known: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return known.get(name, found[0] if found[3] is None else found[3])

    def computed(found: re.Match[str]) -> str:
        inner = re.sub(_NAME, lambda each: known.get(each[0], each[0]), found[1])
        return str(_computed(inner)) if _SUM.fullmatch(inner) else found[0]

    return _bounded(re.sub(r"\$\[([^\]]*)\]", computed, _VARIABLE.sub(value, word)))


def _computed(text: str) -> int:
    """Products and quotients, or sums and differences, from left to right."""
    first, *rest = re.findall(r"[*/+-]?\d+", text)
    total = int(first)
    for step in rest:
        number = int(step[1:])
        if step[0] == "/" and not number:
            raise Invalid([f"$(({text})) divides by 0."])
        total = {"*": total * number, "+": total + number, "-": total - number, "/": total // max(number, 1)}[step[0]]
    return total


def _split(word: str) -> list[str]:
    """A word that holds flags of its own, once variables are put in, is several."""
    if not re.search(r"(^|\s)--?[A-Za-z]", word) or not re.search(r"\s", word.strip()):
        return [word.strip().rstrip(";")]
    try:
        return shlex.split(word)
    except ValueError:
        return word.split()


def _bounded(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise Invalid([f"its variables stand for more than the {MOST_CHARACTERS:,} characters that are read."])
    return text
