"""Pictures in a real browser that a page's own scripts cannot draw everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from pipesim.report.document import Axis, Document, Parallel, Section
from pipesim.report.html import to_html

pytestmark = pytest.mark.slow

PARALLEL = Parallel(
    slug="parallel",
    title='The "best" layouts',
    caption="",
    axes=(Axis(title='a "size"', kind="text"), Axis(title="memory", kind="bytes"), Axis(title="step", kind="seconds")),
    choices=(("1", "2"), (), ()),
    rows=(("1", 20e9, 1.0), ("2", 30e9, 3.0)),
)


@pytest.fixture(scope="module")
def html() -> str:
    return to_html(Document(title="pictures", sections=(Section(title="all", blocks=(PARALLEL,)),)))


def test_parallel_coordinates_are_drawn_and_quotes_are_quotes(open_page: Any, html: str) -> None:
    page = open_page(html)
    page.locator("#chart-parallel .parcoords").first.wait_for()
    assert page.locator(".no-webgl").count() == 0
    assert 'a "size"' in page.locator("#chart-parallel .axis-title").all_text_contents()


def test_without_webgl_the_picture_stays(open_page: Any, html: str) -> None:
    page = open_page(
        html.replace("<head>", "<head><script>HTMLCanvasElement.prototype.getContext = () => null;</script>")
    )
    page.locator("img.twin").wait_for()
    page.wait_for_timeout(500)
    assert page.locator("figure.live").count() == 0
    assert page.locator(".no-webgl").count() == 0
