"""Compiling with numba, kept on disk so that a second process starts warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit``, cached beside the module or, where that folder is read-only, in the user's cache.

    Where neither can be written the function is compiled anew in every process. A compiled function calls compiled
    functions of its own file only: numba does not notice when a cached one of another file has changed.
    """
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # numba: "no locator available", there is no folder that it may write
        return numba.njit(nogil=True, error_model="numpy")(function)
