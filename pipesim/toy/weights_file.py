"""A model's weights in one safetensors file that appears whole or not at all and is believed only after it is checked."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor


def write(path: Path, weights: Mapping[str, Tensor], *, made_from: str, loss: float) -> None:
    """Writes beside ``path`` first and then replaces it. ``made_from`` is a hash of all that decides the weights."""
    told = {"made_from": made_from, "loss": loss.hex(), "digest": _digest(weights, made_from, loss.hex())}
    content = save({name: tensor.contiguous() for name, tensor in weights.items()}, metadata=told)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.replace(file.name, path)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)  # noqa: PTH108
            raise


def read(path: Path, *, like: Mapping[str, Tensor], made_from: str) -> tuple[dict[str, Tensor], float]:
    """The weights and their loss. ``FileNotFoundError`` if there is no file.

    ``ValueError`` says what is wrong with one that cannot be trusted: it is no safetensors file, was made from something
    else, lacks or adds a name, has another shape or type than ``like``, or is not as it was written.
    """
    try:
        with safe_open(path, framework="pt") as file:
            told: dict[str, str] = file.metadata() or {}
            weights: dict[str, Tensor] = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it cannot be read ({error})") from None
    if told.get("made_from") != made_from:
        raise ValueError("it was not made from this shape, recipe and text")
    _check_shapes(weights, like)
    if told.get("digest") != _digest(weights, made_from, told.get("loss", "")):
        raise ValueError("its content is not what was written")
    return weights, float.fromhex(told["loss"])


def _check_shapes(weights: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    if differ := sorted(weights.keys() ^ like.keys()):
        raise ValueError(f"it has other parameters than the model: {', '.join(differ)}")
    for name, tensor in weights.items():
        found, right = ((tuple(each.shape), each.dtype) for each in (tensor, like[name]))
        if found != right:
            raise ValueError(f"{name} is {found[1]} of shape {found[0]} and must be {right[1]} of shape {right[0]}")


def _digest(weights: Mapping[str, Tensor], *told: str) -> str:
    digest = sha256("\n".join(told).encode())
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
