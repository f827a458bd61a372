"""Which framework's arguments a text holds, and what they say."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from pipesim.checks import Invalid, suggest
from pipesim.launch import hugging_face, megatron_deepspeed, megatron_reader, nanotron, torchtitan_reader
from pipesim.launch.rows import Read

DEEPEST, MOST_VALUES = 50, 100_000
"""Tables inside each other, and settings in one file."""

FORMATS: dict[str, Callable[[Any], Read]] = {
    "megatron_lm": megatron_reader.read, "megatron_deepspeed": megatron_deepspeed.read, "deepspeed": megatron_deepspeed.read_json,
    "torchtitan": torchtitan_reader.read, "nanotron": nanotron.read, "hugging_face": hugging_face.read,
}  # fmt: skip
DEEPSPEED_ONLY = ("--deepspeed", "--pp-partition-method", "--zero-stage", "--embed-layernorm", "--no-pipeline-parallel")


def read(text: str, form: str | None = None) -> tuple[str, Read, Mapping[str, Any]]:
    """The format, what the arguments say, and the parsed file where it is no list of flags.

    Raises ``Invalid`` if the text is of no known format.
    """
    if form is not None and form not in FORMATS:
        known = suggest(form, FORMATS) or f" There are {', '.join(FORMATS)}."
        raise Invalid([f"task.read.format={form} is unknown.{known}"])
    form = form or _told(text)
    if form in ("megatron_lm", "megatron_deepspeed"):
        return form, FORMATS[form](text), {}
    content = _content(text, form)
    return form, FORMATS[form](content), content


def _told(text: str) -> str:
    """The format by what only it has."""
    begins = text.lstrip()[:1]
    if begins == "{":
        content = _content(text, "deepspeed")
        return "hugging_face" if "model_type" in content or "architectures" in content else "deepspeed"
    if any(word in text for word in DEEPSPEED_ONLY):
        return "megatron_deepspeed"
    if "--num-layers" in text or "--tensor-model-parallel-size" in text or "--micro-batch-size" in text:
        return "megatron_lm"
    for form, keys in (
        ("torchtitan", ("[parallelism]", "[training]", "[model]")),
        ("nanotron", ("parallelism:", "tokens:")),
    ):
        if any(line.strip().startswith(keys) for line in text.splitlines()):
            return form
    raise Invalid([f"its format cannot be told. Nearest: task.read.format={' or '.join(FORMATS)}."])


def _content(text: str, form: str) -> Mapping[str, Any]:
    parse: dict[str, Callable[[str], Any]] = {"torchtitan": tomllib.loads, "nanotron": yaml.safe_load}
    try:
        content = parse.get(form, json.loads)(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Invalid([f"it cannot be read as {form}: {' '.join(str(error).split())[:300]}."]) from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content) or not _is_small(content):
        raise Invalid(
            [
                f"it is no {form} file: it must be tables of at most {MOST_VALUES:,} settings, {DEEPEST} inside each other."
            ]
        )
    return content


def _is_small(content: Any) -> bool:
    """Aliases written out, for a small file can stand for a large one."""
    level, seen = [content], 0
    for _ in range(DEEPEST):
        level = [
            each for value in level
            for each in (value.values() if isinstance(value, dict) else value) if isinstance(each, dict | list)
        ]  # fmt: skip
        seen += sum(map(len, level))
        if not level:
            return True
        if seen > MOST_VALUES:
            return False
    return False
