"""A small world whose facts a tiny model can learn: who lives where, owns what, is how old, and which place is near which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

ALPHABET = "\n ',-.0123456789:?abcdefghijklmnopqrstuvwxyz"
"""The 44 characters of every text about the world: line feed, space, the signs ``',-.:?``, ten digits and 26 small letters."""

SAYINGS: dict[str, tuple[str, ...]] = {
    "lives in": ("{one} lives in {other}.", "where does {one} live? in {other}.", "{one}'s home: {other}."),
    "owns": ("{one} owns the {other}.", "who owns the {other}? {one}.", "the {other} is {one}'s."),
    "is friends with": ("{one} is friends with {other}.", "who is {one}'s friend? {other}."),
    "is aged": ("{one} is {other} years old.", "how old is {one}? {other}."),
    "is next to": ("{one} is next to {other}.", "from {one}, walk on to {other}."),
    "costs": ("the {one} costs {other} coins.", "how much is the {one}? {other} coins."),
}
"""Each kind of relation, and the ways to say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """``one`` stands in a relation of ``SAYINGS`` to ``other``: another name of the world, or a number."""

    one: str
    kind: str
    other: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Names of people, places and things, and what holds between them; every (one, kind) has a single other."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...]
    relations: tuple[Relation, ...]

    def train_text(self, rounds: int = 12) -> str:
        """Every relation once a round, a sentence a line, over ``ALPHABET``; each round in another order and wording.

        The order follows from hashes rather than a random generator, so the text is the same on every machine.
        """
        if rounds < 1:
            raise ValueError(f"rounds={rounds} must be at least 1. Nearest: 1.")
        return "".join(f"{sentence}\n" for number in range(rounds) for sentence in self._round(number))

    def _round(self, number: int) -> list[str]:
        said = [_say(relation, number) for relation in self.relations]
        return sorted(said, key=lambda sentence: (sha256(f"{number} {sentence}".encode()).digest(), sentence))


def build_world() -> World:
    """The one world of the base model: 12 people, 6 places in a row, 12 things, 66 relations."""
    people = ("ada", "ben", "cleo", "dov", "eve", "finn", "jo", "kim", "max", "quinn", "viv", "zoe")
    places = ("oak-bridge", "high-field", "west-port", "sun-hill", "fox-wood", "grey-lake")
    things = ("axe", "boat", "clock", "drum", "jug", "kite", "lamp", "map", "quilt", "ring", "violin", "wagon")
    return World(
        people=people,
        places=places,
        things=things,
        relations=tuple(_relations(people, places, things)),
    )


def _relations(people: tuple[str, ...], places: tuple[str, ...], things: tuple[str, ...]) -> Iterator[Relation]:
    for k, name in enumerate(people):
        yield Relation(one=name, kind="lives in", other=places[5 * k % len(places)])
        yield Relation(one=name, kind="owns", other=things[7 * k % len(things)])
        yield Relation(one=name, kind="is friends with", other=people[k ^ 1])
        yield Relation(one=name, kind="is aged", other=str(19 + 37 * k % 64))
    for k, name in enumerate(places):
        yield Relation(one=name, kind="is next to", other=places[(k + 1) % len(places)])
    for k, name in enumerate(things):
        yield Relation(one=name, kind="costs", other=str(10 + 43 * k % 97))


def _say(relation: Relation, number: int) -> str:
    """One of the kind's sayings; from round to round the next one."""
    sayings = SAYINGS[relation.kind]
    turn = number + sha256(f"{relation.one} {relation.kind}".encode()).digest()[0]
    return sayings[turn % len(sayings)].format(one=relation.one, other=relation.other)
