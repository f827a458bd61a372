"""Task: launch arguments or a model's ``config.json`` become configs to use from then on, and an estimate at once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipesim import config as configs
from pipesim import inputs, legality
from pipesim.checks import Invalid
from pipesim.launch import hugging_face, reading, torchtitan_reader
from pipesim.launch.rows import Read
from pipesim.launch.values import point_of, values_of
from pipesim.specs import Point
from pipesim.tasks import Done
from pipesim.tasks.read.page import page
from pipesim.tasks.read.words import words

MOST_BYTES = 2**20
USUAL_LENGTH = 8192
"""Tokens of a sequence in most of a pre-training; longer contexts come at its end (Llama 3, 2024, section 3.4.2)."""
GROUPS = {"model": "model", "parallel": "layout", "training": "training"}


def read(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with everything that is wrong with the file, its framework's own rules first."""
    asked = config["task"]["read"]
    path, text = _text(asked["path"])
    try:
        form, found, content = reading.read(text, asked["format"])
        point = _point(form, found, content, config)
    except Invalid as error:
        raise Invalid([f"task.read.path={path}: {problem}" for problem in error.problems]) from None
    name = _name(asked["name"], path)
    point = dataclasses.replace(
        point, model=dataclasses.replace(point.model, name=name, source=f"read from {_plain(path.name)}")
    )
    told = _told(form)
    conf = _conf(config, point, found, told)
    length = _length(content, point) if form == "hugging_face" else ""
    files: dict[str, str | bytes] = {
        f"conf/{group}/{name}.yaml": f"# Read from {_plain(path.name)}.\n"
        + yaml.safe_dump(conf[group], sort_keys=False)
        for group in told
    }
    again = words(conf, name, told)
    document = page(f"{path.name} ({form})", point, conf, found, told, again, length)
    return Done(document=document, files=files, words=tuple(again))


def _length(content: Mapping[str, Any], point: Point) -> str:
    """From where the length of sequences comes, which a model's file does not say."""
    context = point.model.context
    if point.training.seq_length not in (None, context):
        return ""
    shorter = (
        f" Training usually takes shorter ones: training.seq_length={USUAL_LENGTH}." if context > USUAL_LENGTH else ""
    )
    where = hugging_face.context_name(content)
    return f"Sequences of {context:,} tokens, {where}, for training.seq_length is not given.{shorter}"


def _text(asked: str | None) -> tuple[Path, str]:
    if asked is None:
        raise Invalid(["task.read.path=null: name a file of launch arguments, or a config.json."])
    path = Path(asked).expanduser()
    try:
        return path, inputs.read_text(path, MOST_BYTES)
    except OSError as error:
        raise Invalid([f"task.read.path={path} cannot be read: {error.strerror}."]) from None
    except inputs.Unreadable as error:
        raise Invalid([f"task.read.path={path} cannot be read: {error}."]) from None


def _told(form: str) -> tuple[str, ...]:
    """The groups that a format speaks of."""
    return {"hugging_face": ("model",), "deepspeed": ("parallel", "training")}.get(form, tuple(GROUPS))


def _point(form: str, found: Read, content: Mapping[str, Any], config: Mapping[str, Any]) -> Point:
    """What is not told is as the config has it, but never a part of a model."""
    like = configs.build(config)
    values = found.values
    if form == "torchtitan":
        model = values_of(dataclasses.replace(like, model=torchtitan_reader.model_of(content)))
        values |= {key: value for key, value in model.items() if key.startswith("model.")}
        torchtitan_reader.finish_stages(content, values["model.layers"], values)
        values.setdefault("training.seq_length", values["model.context"])
    problems = list(found.problems)
    if "model" in _told(form):
        problems += [
            f"{key} is not told. Nearest: add {_adds(form, key)}."
            for key in dict.fromkeys(found.untold)
            if key.startswith("model.")
        ]
    found.untold = [key for key in dict.fromkeys(found.untold) if not key.startswith("model.")]
    if problems:
        raise Invalid(problems)
    if form != "hugging_face" and "parallel.partition" not in values:
        values["parallel.partition"] = "balanced"
    if "parallel.d" not in values and form not in ("hugging_face",):
        values["parallel.d"] = None
    return point_of(values, like)


def _adds(form: str, key: str) -> str:
    if key == "model.vocab" and form.startswith("megatron"):
        return "--vocab-size N to the arguments"
    return f"what says {key} to the file"


def _name(asked: str | None, path: Path) -> str:
    name = asked or re.sub(r"[^A-Za-z0-9_-]+", "_", path.name.split(".")[0]).strip("_-") or "read"
    taken = [group for group in GROUPS if name in configs.names(group)]
    if asked is None:
        return f"{name}_read" if taken else name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", asked):
        nearest = re.sub(r"[^A-Za-z0-9_-]+", "_", asked).strip("_-") or "read"
        raise Invalid([f"task.read.name={asked!r} becomes a file's: letters, digits, _ and -. Nearest: {nearest}."])
    if taken:
        raise Invalid(
            [f"task.read.name={asked} is a file of conf/{taken[0]} already, which {taken[0]}={asked} would go on meaning. "
             f"Nearest: {asked}_read."]
        )  # fmt: skip
    return asked


def _plain(text: str) -> str:
    """Signs that YAML or OmegaConf read are taken out."""
    return re.sub(r"[^\w.,:()+ -]", "_", text)


def _conf(config: Mapping[str, Any], point: Point, found: Read, told: Sequence[str]) -> dict[str, Any]:
    """The whole plain config of what was read: its framework's own stack, its number of GPUs."""
    conf = dict(config)
    for group in told:
        conf[group] = {key: _listed(value) for key, value in dataclasses.asdict(getattr(point, GROUPS[group])).items()}
    if "parallel" in told:
        conf["parallel"]["partition"] = _partition(point)
        own = dict.fromkeys(config["schedule"]) | dict(point.options)
        conf["schedule"] = own | {"name": point.schedule}
    if found.gpus is not None:
        conf["cluster"] = {**config["cluster"], "gpus": found.gpus}
    if found.framework is not None and config["stack"]["framework"] != found.framework:
        conf["stack"] = configs.stack_files()[found.framework]
    return conf


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _partition(point: Point) -> Any:
    """A word where the layers lie as it says."""
    layout = point.layout
    if isinstance(layout.partition, str) or layout.v is None:
        return layout.partition if isinstance(layout.partition, str) else list(layout.partition)
    balanced = legality.partition_of(point.schedule, point.options, point.model.units, "balanced", layout.p, layout.v)
    return "balanced" if balanced == layout.partition else list(layout.partition)
