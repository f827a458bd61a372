"""Reads a file that a user names: a regular one of bounded size, in UTF-8. Whatever else it is gets a sentence."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

MOST_BYTES = 64 * 2**20
"""Of a file, also once it is decompressed; a schedule of five million actions is smaller."""


class Unreadable(ValueError):
    """A file cannot be read; the message says why, without the file's name."""


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """The whole text of a file, a byte order mark left out; of one named ``.gz`` what is packed in it.

    Raises ``FileNotFoundError`` and other ``OSError`` as opening does, and ``Unreadable``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody fills would wait for ever
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable("it is no regular file")
        packed = str(path).endswith(".gz")
        try:
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(most_bytes + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Unreadable(f"it is no whole gzip file: {error}") from None
    if len(content) > most_bytes:
        raise Unreadable(f"it holds more than the {most_bytes:,} bytes that are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is no text in UTF-8: {error.reason} at byte {error.start}") from None
