"""Expands what is asked into spaces: Hydra composes the choices, values become axes, checked once against the schema."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pipesim import checks, config
from pipesim.checks import Invalid
from pipesim.plan.asked.axes import Asked, named
from pipesim.plan.asked.space import Axis, Space

Compose = Callable[[list[str]], DictConfig]

NUMBERS = (
    *(f"parallel.{degree}" for degree in ("t", "p", "d", "c", "e", "v")),
    "training.micro_batch",
    "training.global_batch",
    "training.seq_length",
)
"""The keys whose axes come last in a space, in this order."""

Lines = tuple[str, ...]
"""Overrides that one value of an axis makes."""


class _Composed(NamedTuple):
    """One composition as a plain config, and the values of the axes as its schema takes them: key -> values."""

    config: dict[str, Any]
    columns: dict[str, list[Any]]
    choices: dict[str, str]
    live: DictConfig | None
    """Where a value may follow another, the composition itself: none can be set without resolving it anew."""


def expand(
    compose: Compose,
    loader: ConfigLoader,
    fixed: Sequence[str],
    axes: Mapping[str, Sequence[str]] | Sequence[Asked],
    where: tuple[str, ...] = (),
) -> list[Space]:
    """Spaces whose combinations are the configs that Hydra's basic sweeper would compose, each as often as there.

    ``axes`` are keys with their values as typed on a command line, or a grid's. Group choices, and what else only composing
    can tell (added and deleted keys, mappings, keys inside one another), make a space for each combination, in the order
    asked; keys of which one refers to another make spaces of one. In every space the axes stand in a canonical order: words
    such as ``training.recompute`` first, in the order asked, then the numbers in the order of ``NUMBERS``; the last changes
    fastest. An axis keeps its values' order and repetitions.

    Hydra composes only once for each choice of a group whose files keep to themselves. Raises what Hydra and OmegaConf
    raise, and ``Invalid``.
    """
    if isinstance(axes, Mapping):
        axes = [Asked((key,), tuple((text,) for text in texts)) for key, texts in axes.items()]
    apart = [axis for axis in axes if _is_composed(axis, axes, loader)]
    plain = sorted((axis for axis in axes if axis not in apart), key=_place)
    alone = [_is_alone(axis, loader) for axis in apart]
    texts = {
        key: [_parsed(key, value[k]) for value in axis.values] for axis in plain for k, key in enumerate(axis.keys)
    }

    @functools.cache
    def composed(choices: tuple[Lines, ...], group: str | None = None) -> _Composed:
        """With the columns that depend on the group, or all."""
        composition = compose([*fixed, *itertools.chain(*choices)])
        config.refuse_unknown(composition)
        follows = "${" in json.dumps([_own(composition), [axis.values for axis in plain]], default=str)
        chosen = dict(composition.hydra.runtime.choices)
        if follows:
            return _Composed({}, {}, chosen, composition)
        columns = _columns(composition, plain, texts, group)
        return _Composed(config.plain(composition), columns, chosen, None)

    found: list[Space] = []
    firsts: dict[tuple[Lines, ...], tuple[Lines, ...]] = {}
    for choices in itertools.product(*map(_lines, apart)):
        others = tuple(() if by_itself else lines for lines, by_itself in zip(choices, alone, strict=True))
        first = firsts.setdefault(others, choices)
        changed = [k for k, lines in enumerate(choices) if lines != first[k]]
        groups = {
            apart[k].keys[0]: composed((*first[:k], choices[k], *first[k + 1 :]), apart[k].keys[0]) for k in changed
        }
        base = composed(first)
        if any(_is_entangled(base, part, group) for group, part in groups.items()):
            base, groups = composed(choices), {}
        if base.live is not None:
            found += _one_by_one(base.live, plain, texts, where)
            continue
        columns = base.columns | {key: values for part in groups.values() for key, values in part.columns.items()}
        found.append(
            Space(
                base=base.config | {group: part.config[group] for group, part in groups.items()},
                axes=tuple(
                    Axis(keys=axis.keys, values=tuple(zip(*map(columns.get, axis.keys), strict=True))) for axis in plain
                ),
                where=where,
            )
        )
    return found


def _is_composed(axis: Asked, axes: Sequence[Asked], loader: ConfigLoader) -> bool:
    """Whether it needs composing anew: a group's choice, an added or deleted key, Hydra's own, a mapping, a key that
    lies in another's value or whose divisors another axis takes.
    """
    others = [key for other in axes if other is not axis for key in other.keys if not loader.get_group_options(key)]
    return (
        any(key.split(".")[0] == "hydra" or not all(map(str.isidentifier, key.split("."))) for key in axis.keys)
        or any(loader.get_group_options(key) for key in axis.keys)
        or any(other.divisors_of in axis.keys for other in axes)
        or any(re.search(r"(?<!\$)\{|\?\?\?", text) for value in axis.values for text in value)
        or any(overlap(key, other) for key in axis.keys for other in others)
    )


def overlap(key: str, other: str) -> bool:
    """Whether one of two keys, as they stand in overrides, lies in the other."""
    one, two = (f"{each.lstrip('+~').partition('@')[0]}." for each in (key, other))
    return one.startswith(two) or two.startswith(one)


def _place(axis: Asked) -> int:
    return min(NUMBERS.index(key) if key in NUMBERS else -1 for key in axis.keys)


def _lines(axis: Asked) -> list[Lines]:
    return [tuple(f"{key}={text}" for key, text in zip(axis.keys, value, strict=True)) for value in axis.values]


def _is_alone(axis: Asked, loader: Any) -> bool:
    """A group each of whose chosen files sets nothing but that group."""
    (key, *others) = axis.keys
    if others or not key.isidentifier():
        return False
    for (text,) in axis.values:
        file = loader.repository.load_config(f"{key}/{text}") if re.fullmatch(r"\w+", text) else None
        if file is None or file.header.get("package") or file.defaults_list:
            return False
    return True


def _is_entangled(base: _Composed, part: _Composed, group: str) -> bool:
    """Whether a group's choice changed another's, or anything may follow it."""
    return base.live is not None or part.live is not None or base.choices | {group: ""} != part.choices | {group: ""}


def _own(composition: DictConfig) -> dict[Any, Any]:
    return {key: value for key, value in OmegaConf.to_container(composition).items() if key != "hydra"}  # type: ignore[union-attr]


def _parsed(key: str, text: str) -> Any:
    """The value as Hydra reads it; plain numbers without its parser, which takes a third of a millisecond."""
    if re.fullmatch(r"-?(0|[1-9]\d*)", text, re.ASCII):
        return int(text)
    return OverridesParser.create().parse_override(f"{key}={text}").value()


def _columns(
    composition: DictConfig, axes: Sequence[Asked], texts: Mapping[str, list[Any]], group: str | None
) -> dict[str, list[Any]]:
    """The axes' values as the schema takes them, converted and refused by OmegaConf; of those that depend on the group, or all."""
    found = {}
    for axis in axes:
        for key in axis.keys:
            asked = _divisors(composition, axis) if axis.divisors_of else texts[key]
            if group in (None, (axis.divisors_of or key).split(".")[0]):
                found[key] = [_set(composition, key, value) for value in asked]
            else:
                _set(composition, key, asked[0])  # what an axis gives is not missing
    return found


def _divisors(composition: DictConfig, axis: Asked) -> list[Any]:
    key = str(axis.divisors_of)
    number = OmegaConf.select(composition, key)
    if number is None:
        group = OmegaConf.select(composition, key.rpartition(".")[0]) or composition
        others = [".".join(filter(None, (key.rpartition(".")[0], str(each)))) for each in group]
        raise Invalid([f"{named(axis.keys)}: divisors_of: {key} has no value.{checks.suggest(key, others)}"])
    return [n for (n,) in axis.of(number).values]


def _set(composition: DictConfig, key: str, value: Any) -> Any:
    OmegaConf.update(composition, key, value)
    value = OmegaConf.select(composition, key)
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _one_by_one(
    composition: DictConfig, axes: Sequence[Asked], texts: Mapping[str, list[Any]], where: tuple[str, ...]
) -> Iterator[Space]:
    """A space for each combination, resolved with all its values set."""
    rows = [
        [(n,) for n in _divisors(composition, axis)]
        if axis.divisors_of
        else list(zip(*map(texts.get, axis.keys), strict=True))
        for axis in axes
    ]
    for values in itertools.product(*rows):
        for axis, value in zip(axes, values, strict=True):
            for key, each in zip(axis.keys, value, strict=True):
                OmegaConf.update(composition, key, each)
        yield Space(base=config.plain(composition), where=where)
