"""Breaks prose into lines of terminal cells: at spaces, and between Chinese characters as their typography allows."""

from __future__ import annotations

import re

from rich.cells import cell_len

_WIDE = "\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
_CLOSING = "，。、；：？！）》」』】”’"
_OPENING = "（《「『【“‘"
_NARROW = rf"[^\s{_WIDE}{_OPENING}{_CLOSING}]"
_PIECE = re.compile(
    rf"\s*[{_OPENING}]*(?:[{_WIDE}]|{_NARROW}+(?: %{_NARROW}*)?|(?=[{_CLOSING}]))[{_CLOSING}]*|\s+|[{_OPENING}]+"
)
"""One unbreakable piece with the space before it: a Chinese character or a word, its brackets, and a number's per cent."""


def wrap(text: str, cells: int) -> list[str]:
    """Lines of at most ``cells`` cells, where the pieces allow; line feeds in the text stay.

    >>> wrap("气泡占比为 7.9 %。", 12)
    ['气泡占比为', '7.9 %。']
    >>> wrap("idle for 7.9 %.", 14)
    ['idle for', '7.9 %.']
    """
    return [line for paragraph in text.split("\n") for line in _wrap(paragraph, cells)]


def _wrap(paragraph: str, cells: int) -> list[str]:
    lines, line = [], ""
    for piece in _PIECE.findall(paragraph):
        if line and cell_len(line + piece.rstrip()) > cells:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]
