"""Two languages: every phrase stands in both side by side, and a report speaks the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

Lang = Literal["en", "zh"]
Say = Callable[[str, str], str]
"""``say(english, chinese)``: the one that was asked for."""


def speaker(lang: Lang) -> Say:
    return lambda en, zh: {"en": en, "zh": zh}[lang]


english = speaker("en")


def asked_language(manifest: Mapping[str, Any]) -> Lang:
    """What the study's config asks for; English where it says nothing."""
    config = manifest.get("first_point") or manifest.get("config") or {}
    return "zh" if config.get("lang") == "zh" else "en"


def word(name: str, words: Mapping[str, tuple[str, str]], say: Say) -> str:
    """A value's name in words; one that has none stays as it is."""
    return say(*words[name]) if name in words else name
