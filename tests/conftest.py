"""Settings of all tests: machines are shared, so no example has a deadline. And a browser for those that look at pages."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("shared")

signal.signal(signal.SIGINT, signal.default_int_handler)
"""Whoever starts the tests in the background may have it ignored, and commands under test would inherit that."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, started once for a module's tests: CHROMIUM names it, or it lies in the path as ``chromium``."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium or not Path(chromium).exists():
        pytest.skip("no chromium: set CHROMIUM to one, or apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens HTML text from a file; in the end no page that is ``heard`` may have complained or asked for anything else."""
    complaints: list[str] = []
    contexts = []

    def opened(html: str, width: int = 1280, hash: str = "", heard: bool = True, **options: Any) -> Any:
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # machines are shared
        if not heard:
            page.goto(file.as_uri() + hash)
            return page
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if _complains(said) else None)
        page.on("request", lambda asked: None if _is_within(asked.url, file) else complaints.append(asked.url))
        page.goto(file.as_uri() + hash)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _complains(said: Any) -> bool:
    """But for what a browser without a graphics card says of its own drawing."""
    return said.type in ("error", "warning") and "GL Driver Message" not in said.text


def _is_within(url: str, file: Path) -> bool:
    return url.startswith(("data:", "blob:")) or url.split("#")[0] == file.as_uri()
