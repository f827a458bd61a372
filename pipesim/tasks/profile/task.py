"""Task: what this machine's kernels and links take is measured and written as a cluster and a stack. Needs torch."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipesim import config as configs
from pipesim.checks import Invalid
from pipesim.tasks import Done

LEAST = {"repeats": 1, "threads": 1, "timeout_s": 1}
DEVICES = ("cpu", "cuda", "auto")


def profile(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for what cannot be measured, before anything starts, and ``RankFailed`` if a link's end fails."""
    try:
        from pipesim.execute import profile as measuring
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Invalid(
            [
                "experiment=profile measures with torch, which is not installed. Install it: "
                "pip install 'pipesim[execute]', or in a checkout: pip install -e '.[execute]'."
            ]
        ) from None
    from pipesim.tasks.profile import profiled

    asked = config["task"]["profile"]
    found = [*_problems(asked, measuring.gpus()), *_size_problems(asked)]
    if found:
        raise Invalid([f"task.profile.{each}" for each in found])
    kind = asked["device"] if asked["device"] != "auto" else "cuda" if measuring.gpus() else "cpu"
    device = measuring.device(kind)
    if kind == "cuda":
        refuse_other_chips(device.name, config["cluster"]["chip"])
    date = asked["date"] or datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return profiled.run(config, device, date)


def refuse_other_chips(name: str, chip: str) -> None:
    """A GPU's peak is the datasheet's, which stands in the chosen cluster: it must be of the GPU that is ``name``."""
    if _is(name, chip):
        return
    known = [each for each, cluster in configs.library("cluster").items() if _is(name, cluster.chip)]
    nearest = f"Nearest: cluster={' or cluster='.join(known)}." if known else "Write one with its datasheet's peaks."
    raise Invalid([f"cluster.chip={chip}: this machine's GPU is {name}, whose cluster must be chosen. {nearest}"])


def _is(name: str, chip: str) -> bool:
    """
    >>> _is("NVIDIA A100-SXM4-80GB", "a100_80g"), _is("NVIDIA A100-SXM4-40GB", "a100_80g"), _is("NVIDIA H200", "h200")
    (True, False, True)
    """
    kind, _, size = chip.partition("_")
    return kind in name.lower() and size in name.lower()


def _problems(asked: Mapping[str, Any], gpus: int) -> Iterator[str]:
    for key, least in LEAST.items():
        if asked[key] < least:
            yield f"{key}={asked[key]} must be at least {least}. Nearest: {least}."
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", asked["name"]):
        nearest = re.sub(r"[^A-Za-z0-9_-]+", "_", asked["name"]).strip("_-") or "profiled"
        yield f"name={asked['name']!r} becomes a file's: letters, digits, _ and -. Nearest: {nearest}."
    if asked["device"] not in DEVICES:
        yield f"device={asked['device']!r} must be one of {', '.join(DEVICES)}. Nearest: auto."
    elif asked["device"] == "cuda" and not gpus:
        yield "device=cuda: torch sees no GPU on this machine. Nearest: cpu."


def _size_problems(asked: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("cpu", "cuda"):
        sizes = asked[kind]
        for shape in sizes["products"]:
            if len(shape) != 3 or min(shape) < 1:
                yield f"{kind}.products: {shape} must be [M, N, K], each at least 1."
        for key, least in (("products", 1), ("lengths", 1), ("copied_bytes", 1), ("message_bytes", 2)):
            if len(sizes[key]) < least:
                yield f"{kind}.{key}={sizes[key]} must hold at least {least} sizes."
        for key in ("lengths", "copied_bytes", "message_bytes"):
            if any(size < 1 for size in sizes[key]):
                yield f"{kind}.{key}={sizes[key]} must be at least 1 each. Nearest: 1."
        for key in ("heads", "head_dim"):
            if sizes[key] < 1:
                yield f"{kind}.{key}={sizes[key]} must be at least 1. Nearest: 1."
        if len(set(sizes["message_bytes"])) == 1 < len(sizes["message_bytes"]):
            yield f"{kind}.message_bytes={sizes['message_bytes']} are all alike; a line needs two different sizes."
