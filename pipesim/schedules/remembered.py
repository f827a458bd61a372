"""Remembering what a function said of a schedule, until the file changes that the schedule comes from."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(maxsize: int) -> Callable[[Function], Function]:
    """``functools.lru_cache`` for functions of positional arguments, one of which may be a schedule's options."""

    def decorate(function: Function) -> Function:
        @lru_cache(maxsize=maxsize)
        def known(_: Any, *arguments: Any) -> Any:
            return function(*arguments)

        @wraps(function)
        def answer(*arguments: Any) -> Any:
            return known(_file(arguments), *arguments)

        return answer  # type: ignore[return-value]

    return decorate


def _file(arguments: tuple[Any, ...]) -> tuple[int, int] | None:
    """When the file of a schedule's options was changed, and its size."""
    for options in arguments:
        if isinstance(options, tuple) and options and isinstance(options[0], tuple):
            path = dict(options).get("path")
            if path is not None and Path(path).exists():
                state = Path(path).stat()
                return state.st_mtime_ns, state.st_size
    return None
