"""What a worker process is given: its rank, where the ranks meet, and a way to tell what it is doing."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from mmap import mmap
from typing import Protocol

SLOT_BYTES = 128
"""What a rank is doing, in memory shared with the launcher: when it began, for whom it waits, and a text."""

STARTING = "its start"
"""What a rank is doing until its work begins."""

_SLOT = struct.Struct(f"=di{SLOT_BYTES - 12}s")
_NOBODY = -1


class Tell(Protocol):
    """Says what the rank is doing from now on, in at most 116 bytes; costs about a microsecond.

    ``waits_for`` is the rank that must act first: a rank that waits is not the one that hangs.
    """

    def __call__(self, doing: str, waits_for: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One of ``world`` processes. ``store_address`` is a TCPStore on the loopback interface, held by the launcher."""

    rank: int
    world: int
    store_address: tuple[str, int]
    tell: Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a rank told last. ``since_s`` is on the monotonic clock, which all processes of a machine share."""

    text: str
    since_s: float
    waits_for: int | None = None


def teller(slot: mmap) -> Tell:
    """The ``tell`` that writes into a slot."""

    def tell(doing: str, waits_for: int | None = None) -> None:
        waits = _NOBODY if waits_for is None else waits_for
        _SLOT.pack_into(slot, 0, time.monotonic(), waits, doing.encode()[: SLOT_BYTES - 12])

    return tell


def heard(slot: mmap) -> Doing:
    """What was told last; also after the process died."""
    since_s, waits, text = _SLOT.unpack_from(slot)
    told = text.rstrip(b"\0").decode(errors="replace")
    return Doing(text=told, since_s=since_s, waits_for=None if waits == _NOBODY else waits)
