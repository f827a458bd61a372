"""Text made small enough to lie inside a page, which unpacks it by itself."""

from __future__ import annotations

import base64
import zlib
from functools import lru_cache


def pack(text: str) -> str:
    """In zlib's format (DecompressionStream's "deflate") as base64, which no page reads as markup.

    Unlike gzip's, its head holds neither time nor system, so the same text is the same bytes.
    """
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


@lru_cache(maxsize=1)
def plotly_js() -> str:
    """Plotly's 5 MB of JavaScript, packed to 2 MB."""
    from plotly.offline import get_plotlyjs

    return pack(get_plotlyjs())
