"""What a demo says, in both languages: its words, and claims that are printed only where this run bears them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from pipesim.report.document import Observations
from pipesim.report.say import Lang as Lang
from pipesim.report.say import Say as Say
from pipesim.report.say import speaker as speaker


class Claim(NamedTuple):
    """One sentence or two, with figures taken from the run, and whether the run bears them out."""

    holds: bool
    en: str
    zh: str


def observations(claims: Iterable[Claim], say: Say) -> tuple[Observations, ...]:
    """The claims that hold, or nothing at all."""
    said = tuple(say(claim.en, claim.zh) for claim in claims if claim.holds)
    return (Observations(title=say("Observations", "观察"), claims=said),) if said else ()


def first(claims: Iterable[Claim]) -> Iterator[Claim]:
    """One claim may be made of several runs; the first that bears it out is enough."""
    return islice((claim for claim in claims if claim.holds), 1)


def counted(count: int, singular: str) -> str:
    """
    >>> counted(1, "micro-batch"), counted(8, "micro-batch"), counted(4, "stage")
    ('1 micro-batch', '8 micro-batches', '4 stages')
    """
    plural = singular + ("es" if singular.endswith("ch") else "s")
    return f"{count} {singular if count == 1 else plural}"
