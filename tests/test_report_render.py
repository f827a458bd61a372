"""One document in a terminal, as Markdown, HTML and figures: the same content, nothing from a name interpreted."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Literal
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipesim.report.document import (
    Axis,
    Chart,
    Column,
    Document,
    Mark,
    Observations,
    Section,
    Table,
    TimelineView,
)
from pipesim.report.figures import figures
from pipesim.report.html import to_html
from pipesim.report.html import words as page_words
from pipesim.report.html.table import file_name
from pipesim.report.markdown import to_markdown
from pipesim.report.terminal import print_document
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate

EVIL = "<script>alert(1)</script> | [bold]b[/bold] :smile: $x$ {{ 1 }}"

COLUMNS = (
    Column(title="布局 t × p × d"),
    Column(title="model states", kind="bytes"),
    Column(title="bubble fraction (idle/total)", kind="percent"),
    Column(title="notes"),
)
TABLE = Table(
    title="Layouts",
    columns=COLUMNS,
    rows=(
        ("4 × 12 × 8", 20.2e9, 0.0794, "the one BLOOM used"),
        ("1 × 6 × 64（单）", 122.8e9, None, EVIL),
    ),
    emphasis=frozenset({0}),
    note="1 GB is 1e9 bytes.",
)
CHART = Chart(
    slug="memory",
    title="Memory",
    caption=EVIL,
    x=Axis(title="memory", kind="bytes"),
    y=Axis(title="step", kind="seconds", log=True),
    marks=(
        Mark(x=20e9, y=100.0, label=EVIL, group="适合"),
        Mark(x=90e9, y=12.0, label="8 × 6 × 8", group=EVIL),
        Mark(x=50e9, y=0.0, label="no place on a logarithmic axis", group="never"),
    ),
    x_limit=(80e9, "limit 80 GB"),
)
UNITS = TimelineView(slug="gpipe", title="GPipe", timeline=simulate(make_schedule("gpipe", p=12, m=32)), unit_s=1.0)
SECONDS = TimelineView(slug="real", title="Real seconds", timeline=simulate(make_schedule("1f1b", p=2, m=2), 0.0123))
CLAIMS = Observations(title="Observations", claims=("It holds.", "1. " + EVIL))


def document(*blocks: str | Table | Chart | TimelineView | Observations) -> Document:
    return Document(title="Report " + EVIL, sections=(Section(title="Section 节", blocks=blocks),), language="zh")


WHOLE = document("A paragraph.", TABLE, CHART, UNITS, SECONDS, CLAIMS)
WITHOUT_CHART = document("A paragraph.", TABLE, UNITS, SECONDS, CLAIMS)


def in_terminal(shown: Document, **console: object) -> str:
    out = io.StringIO()
    print_document(shown, Console(file=out, **console))  # type: ignore[arg-type]
    return out.getvalue()


def json_of_charts(page: str) -> list[dict[str, object]]:
    return [
        json.loads(text)
        for text in re.findall(r'<script type="application/json" class="plot"[^>]*>(.*?)</script>', page)
    ]


def packed(page: str, attribute: str) -> list[str]:
    return [
        zlib.decompress(base64.b64decode(text)).decode()
        for text in re.findall(rf'<script type="text/plain" {attribute}>(.*?)</script>', page)
    ]


class Elements(HTMLParser):
    """The start tags of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_a_pipe_gets_no_control_sequences() -> None:
    assert "\x1b" not in in_terminal(WHOLE)


def test_no_color_is_plain_in_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1m" in in_terminal(WHOLE, force_terminal=True, width=300)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_terminal(WHOLE, force_terminal=True, width=300)


def test_a_pipe_gets_whole_timeline_lines_and_cells() -> None:
    shown = in_terminal(WHOLE, width=40).splitlines()
    assert sum(line.startswith("rank ") for line in shown) == 12
    assert {cell_len(line) for line in shown if line.startswith("rank ")} == {len("rank 11 | ") + 3 * (32 + 11) * 3}
    assert sum(EVIL in line for line in shown) == 3  # the title, the cell, the claim
    assert all(line == line.rstrip() for line in shown)


def test_a_narrow_terminal_leaves_out_last_columns_and_breaks_no_number() -> None:
    shown = in_terminal(document(TABLE), force_terminal=True, width=60, no_color=True)
    table = shown[shown.index("Layouts") :]
    assert "122.8 GB" in table
    assert "… columns that do not fit here: bubble fraction (idle/total), notes" in " ".join(table.split())
    assert all(cell_len(line) <= 60 for line in table.splitlines() if not line.startswith("…"))


def test_the_console_that_was_passed_keeps_its_width() -> None:
    console = Console(file=io.StringIO(), width=77)
    print_document(WHOLE, console)
    assert console.width == 77


def test_wide_characters_keep_columns_aligned() -> None:
    lines = [line for line in in_terminal(WHOLE).splitlines() if " GB " in line and "×" in line]
    ends = {cell_len(line[: line.index(" GB ") + 3]) for line in lines}
    assert len(lines) == 2
    assert len(ends) == 1


def test_only_timelines_with_a_unit_are_text() -> None:
    assert "GPipe" in in_terminal(WHOLE)
    assert "Real seconds" not in in_terminal(WHOLE)
    assert to_markdown(WHOLE).count("```text") == 1


def test_observations_are_numbered() -> None:
    assert "\n1. It holds.\n2. 1. <script>" in in_terminal(WHOLE)
    assert "\n1. It holds.\n2. 1\\. " in to_markdown(WHOLE)


def test_markdown_links_every_figure_that_is_drawn() -> None:
    assert (
        re.findall(r"\]\(figures/(.*?)\)", to_markdown(WHOLE))
        == list(figures(WHOLE))
        == [
            "memory.svg",
            "gpipe.svg",
            "real.svg",
        ]
    )


def test_pictures_beside_the_report_are_linked_without_a_folder() -> None:
    assert "![GPipe](gpipe.svg)" in to_markdown(replace(document(UNITS), figure_folder=""))


def test_markdown_tables_have_equal_rows_with_numbers_to_the_right() -> None:
    rows = [line for line in to_markdown(WHOLE).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert len({cell_len(row) for row in rows}) == 1
    assert re.fullmatch(r"\| -+ \| -+: \| -+: \| -+ \|", rows[1])
    assert "**20.2 GB** |" in rows[2]


def test_markdown_interprets_nothing_from_a_name() -> None:
    text = to_markdown(WHOLE)
    assert "\\<script\\>alert(1)\\</script\\> \\| \\[bold\\]" in text
    assert not re.search(r"(?<!\\)<script", text)


def test_markdown_keeps_underscores_inside_names_readable() -> None:
    text = to_markdown(document("bloom_176b and _this_", "# no heading", "- no list"))
    assert "bloom_176b and \\_this\\_\n\n\\# no heading\n\n\\- no list" in text


def test_every_figure_is_xml() -> None:
    for svg in figures(WHOLE).values():
        ElementTree.fromstring(svg)


def test_two_figures_cannot_share_a_name() -> None:
    with pytest.raises(AssertionError, match="two figures are called gpipe"):
        figures(document(UNITS, UNITS))


def test_a_static_chart_shows_names_units_and_the_limit_as_text() -> None:
    shown = " ".join(ElementTree.fromstring(figures(WHOLE)["memory.svg"]).itertext())
    for text in ("memory (GB)", "step (s)", "limit 80 GB", "适合", "8 × 6 × 8", EVIL):
        assert text in shown
    assert "never" not in shown


def test_names_in_a_crowded_chart_do_not_cover_each_other() -> None:
    crowd = tuple(Mark(x=1.0 + i / 1e6, y=1.0, label=f"name {i}", group="g") for i in range(40))
    svg = figures(document(replace(CHART, marks=crowd)))["memory.svg"]
    assert 1 <= svg.count(">name ") <= 4


def test_an_empty_chart_is_still_drawn() -> None:
    empty = document(replace(CHART, marks=(), x_limit=None))
    ElementTree.fromstring(figures(empty)["memory.svg"])
    assert json_of_charts(to_html(empty))[0]["data"] == []


def test_more_groups_than_colours_still_look_different() -> None:
    from pipesim.report.charts import look

    assert len({look(index) for index in range(40)}) == 40


def test_two_renders_are_the_same_bytes() -> None:
    assert to_html(WHOLE) == to_html(WHOLE)
    assert to_markdown(WHOLE) == to_markdown(WHOLE)
    assert figures(WHOLE) == figures(WHOLE)


def test_a_page_without_charts_has_no_plotly() -> None:
    assert len(to_html(WITHOUT_CHART)) < 300_000
    assert packed(to_html(WITHOUT_CHART), 'id="plotly"') == []
    [script] = packed(to_html(WHOLE), 'id="plotly"')
    assert "Plotly, Inc." in script


def test_a_page_with_two_charts_has_plotly_once() -> None:
    two = document(CHART, replace(CHART, slug="other"))
    assert len(to_html(two)) - len(to_html(document(CHART))) < 100_000
    assert len(json_of_charts(to_html(two))) == 2


def test_a_page_loads_nothing() -> None:
    page = Elements(to_html(WITHOUT_CHART))
    assert not page.of("link")
    assert not [attributes for _, attributes in page.found if "src" in attributes]
    assert all("src" not in script for script in Elements(to_html(WHOLE)).of("script"))


def test_a_page_says_its_language() -> None:
    assert Elements(to_html(WITHOUT_CHART)).of("html") == [{"lang": "zh-CN"}]
    assert Elements(to_html(replace(WITHOUT_CHART, language="en"))).of("html") == [{"lang": "en"}]


def test_a_page_interprets_nothing_from_a_name() -> None:
    # of the page and its words and the table, of the viewer and two timelines; of plotly and the chart
    for shown, scripts in ((WITHOUT_CHART, 6), (WHOLE, 8)):
        page = to_html(shown)
        assert len(Elements(page).of("script")) == scripts
        assert "<script>alert" not in page
        assert "{{ 1 }}" in page


def test_plotly_gets_names_escaped_because_it_reads_them_as_html() -> None:
    [chart] = json_of_charts(to_html(WHOLE))
    traces = chart["data"]
    assert isinstance(traces, list)
    first = traces[1]  # drawn after the second group, so above it
    assert first["text"][0].startswith("&lt;script&gt;")
    assert first["x"] == [20.0]
    assert [trace["mode"] for trace in traces] == ["markers+text", "markers+text", "lines"]


def test_a_page_holds_the_raw_values_of_its_tables() -> None:
    odd = Table(
        title="Odd: a/b",
        columns=(Column(title="bytes", kind="bytes"), Column(title="n", kind="count"), Column(title="name")),
        rows=((20.2e9, 7, "</script>"), (math.nan, None, "a\x00b"), (math.inf, (3, 4), ""), (-math.inf, True, None)),
        emphasis=frozenset({2}),
    )
    [data] = map(json.loads, packed(to_html(document(odd)), 'class="columns"'))
    assert data["columns"] == [
        [20.2e9, None, math.inf, -math.inf],
        [7, None, [3, 4], True],
        ["</script>", "a\ufffdb", "", None],
    ]
    assert data["emphasis"] == [2]
    assert data["file"] == "Odd-a-b.csv"
    assert [(head["unit"], head["whole"], head["size"], head["sign"]) for head in data["heads"]] == [
        ("bytes", False, 1e9, "GB"), ("", True, 1.0, ""), ("", True, 1.0, ""),
    ]  # fmt: skip


def test_the_file_of_a_table_is_called_as_it_asks() -> None:
    assert file_name(replace(TABLE, slug="ranked")) == "ranked.csv"
    assert file_name(replace(TABLE, title="../" * 99)) == "table.csv"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_its_own_words_in_every_language(language: Literal["en", "zh"]) -> None:
    page = to_html(replace(WHOLE, language=language))
    assert page_words.WORDS[language].keys() == page_words.WORDS["en"].keys()
    for word in ("skip", "theme", "download"):
        assert page_words.WORDS[language][word] in page
    assert (page_words.WORDS["en"]["download"] in page) == (language == "en")


def test_a_large_table_stands_in_the_page_only_in_part() -> None:
    large = replace(TABLE, rows=tuple((f"name {i}", i * 1e9, i / 1e4, "") for i in range(10_000)))
    page = to_html(document(large))
    assert 100 < len(Elements(page).of("tr")) < 110
    [data] = map(json.loads, packed(page, 'class="columns"'))
    assert data["columns"][1] == [i * 1e9 for i in range(10_000)]
    assert len(page) < 300_000


@pytest.mark.slow
def test_ten_thousand_rows_of_thirty_random_numbers_and_a_chart_stay_under_six_megabytes() -> None:
    dice = random.Random(1)
    columns = tuple(Column(title=f"item {k}", kind="seconds") for k in range(30))
    table = Table(
        title="Many", columns=columns, rows=tuple(tuple(dice.random() for _ in columns) for _ in range(10_000))
    )
    assert len(to_html(document(table, CHART))) < 6_000_000


def test_the_row_that_stands_out_does_so_everywhere() -> None:
    rows = [row.get("class") for row in Elements(to_html(document(TABLE))).of("tr")]
    assert rows == [None, "filters", "stands-out", None]
