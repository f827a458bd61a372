"""A character tokenizer: a character's token is its place in the alphabet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipesim.toy.world import ALPHABET


@dataclass(frozen=True, slots=True, kw_only=True)
class CharTokenizer:
    """Tokens ``0 .. len(alphabet) - 1``. Raises ``ValueError`` for an alphabet that is empty or names a character twice."""

    alphabet: str = ALPHABET
    _tokens: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        twice = next((sign for k, sign in enumerate(self.alphabet) if sign in self.alphabet[:k]), None)
        if twice is not None or not self.alphabet:
            what = "is empty" if twice is None else f"has {twice!r} twice"
            raise ValueError(f"the alphabet {self.alphabet!r} {what}; it must name at least one character, each once.")
        object.__setattr__(self, "_tokens", {sign: token for token, sign in enumerate(self.alphabet)})

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """One token a character. ``ValueError`` names the first character outside, its position and the alphabet."""
        for position, sign in enumerate(text):
            if sign not in self._tokens:
                raise ValueError(
                    f"character {sign!r} at position {position} is outside the alphabet of {self.vocab} characters "
                    f"{self.alphabet!r}.{self._nearest(sign)}"
                )
        return [self._tokens[sign] for sign in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text again. ``ValueError`` names the first token that is none, and its position."""
        known = [int(token) for token in tokens]
        for position, token in enumerate(known):
            if not 0 <= token < self.vocab:
                nearest = min(max(token, 0), self.vocab - 1)
                raise ValueError(
                    f"token {token} at position {position} must lie between 0 and {self.vocab - 1}. Nearest: {nearest}."
                )
        return "".join(self.alphabet[token] for token in known)

    def _nearest(self, sign: str) -> str:
        near = sign.lower()
        return f" Nearest: {near!r}." if near in self._tokens else ""
