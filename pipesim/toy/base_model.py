"""The base model: a tiny GPT that has learned the small world's text, trained once and kept in a cache folder."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from pipesim.toy import weights_file
from pipesim.toy.data import get_batch
from pipesim.toy.gpt import Gpt, GptSpec
from pipesim.toy.one_thread import one_thread
from pipesim.toy.tokenizer import CharTokenizer
from pipesim.toy.world import build_world


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the base model is trained: AdamW steps on ``batch`` windows of ``length`` tokens; everything from one seed."""

    steps: int = 400
    batch: int = 16
    length: int = 96
    learning_rate: float = 3e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps} must be at least 1. Nearest: 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A model whose parameters ask for no gradients; copy its state before training it further.

    ``loss`` is the mean cross-entropy over the whole text, ``unigram_entropy`` what a model that knows only how often
    each character comes would reach at best; both in nats per character. ``trained`` is false if the cache had it.
    """

    model: Gpt
    loss: float
    unigram_entropy: float
    path: Path
    trained: bool


def load_or_train_base_model(
    spec: GptSpec | None = None, recipe: Recipe | None = None, *, text: str | None = None, cache: Path | None = None
) -> BaseModel:
    """Reads the model from ``cache``, or trains it (about 20 s with the defaults) and keeps it there.

    Left out, the shape and recipe are the base model's, the text is the small world's and the folder ``cache_folder()``.
    A file that cannot be trusted is replaced, and a folder that cannot be written is left alone, each with a warning.
    Raises ``ValueError`` for a vocabulary that is not the alphabet's and for a text that does not suit.
    """
    spec, recipe = spec or GptSpec(), recipe or Recipe()
    text = build_world().train_text() if text is None else text
    tokens = _tokens(spec, text)
    made_from = _fingerprint(spec, recipe, text)
    path = (cache or cache_folder()) / f"base-model-{made_from[:16]}.safetensors"
    found = _read(path, spec, made_from)
    model, loss = found or _train(spec, recipe, tokens)
    if found is None:
        _keep(path, model, loss, made_from)
    model.requires_grad_(False).eval()
    entropy = unigram_entropy(text)
    return BaseModel(model=model, loss=loss, unigram_entropy=entropy, path=path, trained=found is None)


def text_batch(sequences: int, length: int, seed: int) -> Tensor:
    """Windows of the base model's text, int64 of shape (sequences, length + 1): inputs, and the targets one later."""
    tokens = torch.tensor(CharTokenizer().encode(build_world().train_text()))
    inputs, targets = get_batch(tokens, sequences, length, torch.Generator().manual_seed(seed))
    return torch.cat([inputs, targets[:, -1:]], dim=1)


def cache_folder() -> Path:
    """``pipesim`` in ``$XDG_CACHE_HOME`` if that is an absolute path, else in ``~/.cache``."""
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (asked if asked.is_absolute() else Path.home() / ".cache") / "pipesim"


def unigram_entropy(text: str) -> float:
    """Nats per character of the text's own character frequencies.

    >>> unigram_entropy("abab") == math.log(2)
    True
    """
    return -sum(count / len(text) * math.log(count / len(text)) for count in Counter(text).values())


def _tokens(spec: GptSpec, text: str) -> Tensor:
    tokenizer = CharTokenizer()
    if spec.vocab != tokenizer.vocab:
        raise ValueError(
            f"vocab={spec.vocab} must be the {tokenizer.vocab} characters of the alphabet. Nearest: {tokenizer.vocab}."
        )
    return torch.tensor(tokenizer.encode(text))


def _fingerprint(spec: GptSpec, recipe: Recipe, text: str) -> str:
    """A hash of all that decides the weights, in 64 hexadecimal digits."""
    asked = {"spec": asdict(spec), "recipe": asdict(recipe), "text": sha256(text.encode()).hexdigest()}
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _read(path: Path, spec: GptSpec, made_from: str) -> tuple[Gpt, float] | None:
    """The model of the file; nothing, with a warning, for a file that cannot be trusted."""
    with torch.random.fork_rng(devices=[]):
        model = Gpt(spec)
    parameters = dict(model.named_parameters())
    try:
        weights, loss = weights_file.read(path, like=parameters, made_from=made_from)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(f"{path} is not used: {error}. The base model is trained again.", stacklevel=3)
        return None
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    return model, loss


def _train(spec: GptSpec, recipe: Recipe, tokens: Tensor) -> tuple[Gpt, float]:
    """The trained model and its loss over the whole text; the caller's random state stays as it was."""
    generator = torch.Generator().manual_seed(recipe.seed)
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(recipe.seed)
        model = Gpt(spec)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
        for _ in range(recipe.steps):
            optimizer.zero_grad()
            _loss(model, *get_batch(tokens, recipe.batch, recipe.length, generator)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model, _text_loss(model, tokens, recipe.length)


@torch.no_grad()
def _text_loss(model: Gpt, tokens: Tensor, length: int) -> float:
    """Over windows of ``length`` that follow each other; what is left after the last is not counted."""
    windows = (len(tokens) - 1) // length
    inputs, targets = (tokens[first : first + windows * length].view(windows, length) for first in (0, 1))
    return float(_loss(model, inputs, targets))


def _loss(model: Gpt, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def _keep(path: Path, model: Gpt, loss: float, made_from: str) -> None:
    try:
        weights_file.write(path, dict(model.named_parameters()), made_from=made_from, loss=loss)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error}): the next run trains again.", stacklevel=3)
