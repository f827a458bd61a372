"""Report pages in a real browser: nothing is asked of a network, and what a reader can do with them works."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import struct
from dataclasses import replace
from typing import Any, get_args

import pytest

from pipesim.report.document import (
    Axis,
    Cell,
    Chart,
    Column,
    Document,
    Kind,
    Mark,
    Observations,
    Section,
    Table,
    TimelineView,
)
from pipesim.report.formats import show
from pipesim.report.html import to_html
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'`${1}{{ 2 }}\u202egnp.exe"
ENDLESS = "aGPU" * 2500
ARABIC = "نموذج كبير"
COLUMNS = (
    Column(title="layout"),
    Column(title="t", kind="count"),
    Column(title="step", kind="seconds"),
    Column(title="memory", kind="bytes"),
    Column(title="MFU", kind="percent"),
    Column(title="fits", kind="flag"),
)
SMALL = Table(
    title="Layouts, ranked",
    slug="ranked",
    columns=COLUMNS,
    rows=tuple(
        (f"t{t} p6", t, 100.0 / t + 0.125, 8e9 * t, None if t == 4 else t / 64, t < 12)
        for t in (10, 2, 4, 8, 1, 16, 3, 5, 6)
    ),
    emphasis=frozenset({0}),
    note="A note.",
)
CHART = Chart(
    slug="memory",
    title="Step time against memory",
    caption="Down and left is better.",
    x=Axis(title="memory", kind="bytes"),
    y=Axis(title="step", kind="seconds", log=True),
    marks=(Mark(x=20e9, y=100.0, label="t4 p6", group="fits"), Mark(x=90e9, y=12.0, label="t8", group="does not fit")),
    x_limit=(80e9, "80 GB a GPU"),
)
TIMELINE = TimelineView(slug="1f1b", title="1F1B", timeline=simulate(make_schedule("1f1b", p=4, m=8)), unit_s=1.0)
CLAIMS = Observations(title="Observations", claims=("It holds.",))


def page_of(*blocks: Any, **more: Any) -> str:
    sections = (
        Section(title="Answer", blocks=("The fastest is t2.", *blocks)),
        Section(title="More", blocks=("Text.",)),
        Section(title="How to read this", blocks=("MFU is a share.",)),
    )
    return to_html(Document(title="A report", sections=sections, **more))


def large(rows: int = 10_000) -> Table:
    """Rows whose right order is known: the step's milliseconds are a permutation of the row numbers."""
    step = [i * 7919 % rows for i in range(rows)]
    return Table(
        title="Many",
        columns=COLUMNS,
        rows=tuple((f"name {i}", i % 16, step[i] / 1e3, step[i] * 1e7, i / rows, i % 2 == 0) for i in range(rows)),
        emphasis=frozenset({0}),
    )


def column(page: Any, at: int) -> list[str]:
    return [text.strip() for text in page.locator(f".table tbody tr td:nth-child({at})").all_inner_texts()]


def overflow(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def saved(page: Any) -> tuple[str, list[list[str]]]:
    with page.expect_download() as found:
        page.get_by_role("button", name="Download CSV").click()
    text = found.value.path().read_text(encoding="utf-8")
    return found.value.suggested_filename, list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


@pytest.fixture(scope="module")
def whole() -> str:
    return page_of(SMALL, CHART, TIMELINE, CLAIMS)


def test_a_click_sorts_and_another_turns_it_round_with_what_is_missing_last(open_page: Any) -> None:
    page = open_page(page_of(SMALL))
    head = page.locator("th", has_text="MFU")
    head.get_by_role("button").click()
    page.wait_for_selector("th[aria-sort=ascending]")
    assert column(page, 2) == ["1", "2", "3", "5", "6", "8", "10", "16", "4"]
    head.get_by_role("button").click()
    page.wait_for_selector("th[aria-sort=descending]")
    assert column(page, 2) == ["16", "10", "8", "6", "5", "3", "2", "1", "4"]
    page.locator("th", has_text="layout").get_by_role("button").click()
    assert page.locator("th[aria-sort]").count() == 1
    page.wait_for_function("document.querySelector('tbody td').innerText === 't1 p6'")
    assert column(page, 1)[:3] == ["t1 p6", "t2 p6", "t3 p6"]
    page.get_by_role("button", name="Reset", exact=True).click()
    page.wait_for_function("document.querySelector('tbody td').innerText === 't10 p6'")
    assert page.locator("tbody tr").first.get_attribute("class") == "stands-out"


def test_a_filter_takes_words_and_bounds(open_page: Any) -> None:
    page = open_page(page_of(SMALL))
    page.get_by_role("button", name="Filter").click()
    everything = [str(row[1]) for row in SMALL.rows]
    for head, asked, left in (
        ("layout", "T1", ["10", "1", "16"]), ("t", "4", ["4"]), ("t", ">=8", ["10", "8", "16"]), ("t", "2..4", ["2", "4", "3"]),
        ("memory", "<24 GB", ["2", "1"]), ("memory", "<=24", ["2", "1", "3"]), ("step", ">50000 ms", ["2", "1"]),
        ("step", "=12.625", ["8"]), ("MFU", ">= 12.5%", ["10", "8", "16"]), ("MFU", "12.5", ["8"]), ("fits", "no", ["16"]),
        ("memory", "8..16GB", ["2", "1"]), ("t", ">1,000", []), ("t", "<", everything), ("t", "nine", []),
    ):  # fmt: skip
        field = page.get_by_label(f"Filter {head}", exact=True)
        field.fill(asked)
        page.wait_for_timeout(50)
        assert column(page, 2) == left, asked
        assert (field.get_attribute("aria-invalid") == "true") == (asked == "<")
        said = page.locator(".pager span").text_content()
        if left != everything:
            assert said == (
                f"Rows 1–{len(left)} of {len(left)} that match; 9 in all" if left else "No row of 9 matches"
            )
        field.fill("")
    page.get_by_label("Filter t", exact=True).fill(">2")
    page.get_by_label("Filter step", exact=True).fill("<21")
    page.wait_for_timeout(50)
    assert column(page, 2) == ["10", "8", "16", "5", "6"]


def test_ten_thousand_rows_turn_pages_sort_and_filter(open_page: Any) -> None:
    table = large()
    page = open_page(page_of(table))
    assert page.locator("tbody tr").count() == 100
    assert page.locator(".pager span").inner_text() == "Rows 1–100 of 10,000"
    page.get_by_role("button", name="Next").click()
    page.wait_for_function("document.querySelector('tbody td').innerText === 'name 100'")
    assert page.locator(".pager span").inner_text() == "Rows 101–200 of 10,000"
    shown = page.locator("tbody tr").first.locator("td").all_inner_texts()
    assert shown == [show(value, head.kind) for value, head in zip(table.rows[100], table.columns, strict=True)]
    page.locator("th", has_text="step").get_by_role("button").click()
    page.wait_for_function("document.querySelector('tbody td:nth-child(3)').innerText === '0 s'")
    by_step = sorted(table.rows, key=lambda row: row[2])  # type: ignore[arg-type, return-value]
    assert column(page, 1) == [row[0] for row in by_step[:100]]
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("Filter t", exact=True).fill("<2")
    page.wait_for_function("document.querySelector('.pager span').innerText.includes('1,250 that match')")
    assert column(page, 1) == [row[0] for row in by_step if row[1] < 2][:100]  # type: ignore[operator]
    _, rows = saved(page)
    assert [row[0] for row in rows[1:]] == [row[0] for row in by_step if row[1] < 2]  # type: ignore[operator]


def test_a_page_cannot_ask_a_network_for_anything(open_page: Any) -> None:
    page = open_page(page_of(SMALL), heard=False)
    assert page.evaluate("fetch('http://localhost:9/').then(() => 'sent', () => 'refused')") == "refused"
    violated = page.evaluate("""new Promise(done => {
      document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
      document.body.append(Object.assign(new Image(), {src: "http://localhost:9/x.png"}));
    })""")
    assert violated == "img-src"


def test_a_saved_table_has_raw_values_units_and_no_formulas(open_page: Any) -> None:
    formulas = ("=1+1", "+1", "-1", "@a", 'say "a, b"', "two\nlines", "模型", ENDLESS, "'quoted")
    values = (0.1 + 0.2, 1e-9, 20_200_000_000, 2**40, 1.5e300, math.inf, math.nan, None, -3.0)
    table = Table(
        title="Any",
        slug="any",
        columns=(Column(title="name, of"), Column(title="memory", kind="bytes"), Column(title="held", kind="count")),
        rows=tuple((name, value, (4, 3)) for name, value in zip(formulas, values, strict=True)),
    )
    name, rows = saved(open_page(page_of(table)))
    assert name == "any.csv"
    assert rows[0] == ["name, of", "memory [bytes]", "held"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+1", "'-1", "'@a", *formulas[4:]]
    assert [float(row[1]) if row[1] else None for row in rows[1:]] == [*values[:6], None, None, -3.0]
    assert rows[3][1] == "20200000000"
    assert {row[2] for row in rows[1:]} == {"4 3"}


def test_a_click_or_enter_copies_the_exact_value(open_page: Any) -> None:
    page = open_page(page_of(SMALL), permissions=["clipboard-read", "clipboard-write"])
    page.locator("tbody tr").nth(5).locator("td").nth(2).click()
    page.wait_for_function("document.querySelector('.toast').innerText === 'Copied: 6.375'")
    assert page.evaluate("navigator.clipboard.readText()") == "6.375"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.toast').innerText === 'Copied: 8000000000'")
    assert page.evaluate("navigator.clipboard.readText()") == "8000000000"
    page.locator("tbody td").nth(3).hover()
    page.wait_for_function("document.querySelectorAll('tbody td')[3].title === '80000000000'")


def test_everything_is_reached_by_keys_and_seen(open_page: Any) -> None:
    page = open_page(page_of(SMALL))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    reached = set()
    for _ in range(24):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached.add(page.evaluate("document.activeElement.closest('th,td,.tools,nav,.scroll')?.className ?? ''"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"tools scripted", "scroll", "right"} <= reached
    page.locator("th button").nth(1).focus()
    page.keyboard.press("Space")
    page.wait_for_selector("th[aria-sort=ascending]")
    assert column(page, 2)[0] == "1"


def test_charts_are_drawn_when_they_come_near_and_on_paper_are_pictures(open_page: Any, whole: str) -> None:
    page = open_page(whole)
    page.locator("figure.picture").scroll_into_view_if_needed()
    page.wait_for_selector(".live .main-svg .point")
    assert page.locator(".chart .xtitle").text_content() == "memory (GB)"
    assert not page.locator(".twin").is_visible()
    buttons = page.locator(".modebar-btn").evaluate_all("all => all.map(each => each.dataset.title)")
    assert "Download plot as a PNG" in buttons
    assert not [name for name in buttons if "hare" in name or "loud" in name]  # nothing is sent to anybody
    page.emulate_media(media="print")
    assert page.locator(".twin").is_visible()
    assert not page.locator(".chart").is_visible()
    assert not page.get_by_role("button", name="Download CSV").is_visible()
    assert len(page.pdf()) > 10_000


def test_a_page_is_light_or_dark_as_the_system_is_until_its_button_is_pressed(open_page: Any) -> None:
    shown = page_of(SMALL, TIMELINE)

    def paper(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = "rgb(255, 255, 255)", "rgb(13, 17, 23)"
    assert paper(open_page(shown, color_scheme="light")) == light
    page = open_page(shown, color_scheme="dark")
    assert paper(page) == dark
    page.get_by_role("button", name="Dark or light").click()
    assert paper(page) == light
    assert page.evaluate("getComputedStyle(document.querySelector('svg.pt')).backgroundColor") == light
    page.reload()
    assert paper(page) == light
    page.get_by_role("button", name="Dark or light").click()
    assert paper(page) == dark


def test_a_chinese_page_speaks_chinese(open_page: Any) -> None:
    page = open_page(page_of(SMALL, language="zh"))
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    page.get_by_role("button", name="筛选").click()
    page.get_by_label("筛选 t", exact=True).fill("<3")
    page.wait_for_function("document.querySelector('.pager span').innerText === '第 1–2 行，符合条件 2 行；总共 9 行'")
    assert page.get_by_role("button", name="下载 CSV").is_visible()


def test_without_scripts_the_first_rows_and_the_pictures_stand_there(open_page: Any) -> None:
    page = open_page(page_of(large(), CHART, TIMELINE), java_script_enabled=False)
    assert page.locator(".table tbody tr").count() == 100
    assert page.get_by_text("Rows 1–100 of 10,000").is_visible()
    assert page.locator("img.twin").is_visible()
    assert page.locator("svg.pt").first.is_visible()
    assert page.get_by_role("button", name="Download CSV").count() == 0


def test_hostile_and_endless_names_are_text_and_stay_in_the_page(open_page: Any) -> None:
    names = (HOSTILE, ENDLESS, ARABIC, "]]>&amp;</script>")
    table = Table(
        title=HOSTILE,
        columns=(Column(title=ENDLESS), Column(title=HOSTILE, kind="bytes"), Column(title=ARABIC, kind="count")),
        rows=tuple((names[i % 4], i * 1e9, i) for i in range(400)),
        note=ENDLESS,
    )
    marks = tuple(Mark(x=i + 1.0, y=1.0 + i, label=name, group=name) for i, name in enumerate(names))
    chart = replace(CHART, title=HOSTILE, caption=ENDLESS, marks=marks, x_limit=(2.0, ENDLESS))
    blocks = (ENDLESS, HOSTILE, table, chart, Observations(title=ENDLESS, claims=(ENDLESS, HOSTILE)))
    sections = tuple(
        Section(title=title, blocks=blocks if title is HOSTILE else ("a",)) for title in (HOSTILE, ENDLESS, ARABIC)
    )
    page = open_page(to_html(Document(title=f"{ENDLESS} {HOSTILE}", sections=sections)))
    page.on("dialog", lambda dialog: pytest.fail("a name ran as a script"))
    page.locator("figure.picture").scroll_into_view_if_needed()
    page.wait_for_selector(".live .main-svg .point")
    assert page.title().startswith("aGPU")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("button", name="Next").click()
    page.wait_for_function("document.querySelector('.pager span').innerText.startsWith('Rows 101')")
    assert page.locator("tbody td").first.inner_text() == HOSTILE.replace("\u202e", "\ufffd")
    assert page.locator("tbody script, tbody img").count() == 0
    assert max(map(len, page.locator(".legendtext").all_text_contents())) <= 61
    assert page.locator("nav").bounding_box()["height"] < 100
    assert page.locator("tbody tr").nth(1).bounding_box()["height"] < 300
    for width in (375, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(500)
        assert overflow(page) == 0
        assert page.locator("figure.picture .main-svg").first.bounding_box()["width"] <= width


def test_axe_finds_no_serious_fault(open_page: Any, whole: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()
    page = open_page(whole)
    page.locator("figure.picture").scroll_into_view_if_needed()
    page.wait_for_selector(".live .main-svg .point")
    page.get_by_role("button", name="Filter").click()
    page.locator("tbody td").first.click()
    for width, scheme in ((375, "light"), (375, "dark"), (1280, "light"), (1280, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        found = axe.run(page).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in serious] == [], (width, scheme)
        assert overflow(page) == 0


def test_the_page_shows_values_as_python_does(open_page: Any) -> None:
    kinds = get_args(Kind)
    values = awkward_values()
    page = open_page(page_of(*(whole_column(kind, values) for kind in kinds)))
    for at, kind in enumerate(kinds):
        block = page.locator(".table").nth(at)
        while True:
            texts = block.locator("tbody td").all_inner_texts()
            first = (
                int(block.locator(".pager span").inner_text().split("–")[0].removeprefix("Rows ").replace(",", "")) - 1
            )
            assert texts == [show(value, kind) for value in values[first : first + 100]]
            if block.locator("[data-do=next]").is_disabled():
                break
            block.locator("[data-do=next]").click()
            page.wait_for_timeout(20)


def whole_column(kind: Kind, values: list[Cell]) -> Table:
    return Table(title=kind, columns=(Column(title=kind, kind=kind),), rows=tuple((value,) for value in values))


def awkward_values() -> list[Cell]:
    """Random doubles of every size and sign, ties between two decimals, powers of ten and their neighbours."""
    dice = random.Random(7)
    sizes = [dice.uniform(-1, 1) * 10 ** dice.uniform(-14, 17) for _ in range(400)]
    bits = [struct.unpack("<d", dice.randbytes(8))[0] for _ in range(100)]
    ties = [sign * (k + 0.5) / 4 * unit for k in range(40) for unit in (1, 1e3, 1e9, 1e12) for sign in (1, -1)]
    huge = [1.125e12, 1.135e15, 9.995e20, 1.125e21, 1e21, 2.5e22]
    tens = [math.nextafter(10.0**k, to) for k in range(-12, 18) for to in (0.0, 10.0**k, math.inf)]
    return [
        0.5,
        -0.0,
        0.0,
        math.inf,
        -math.inf,
        math.nan,
        None,
        *sizes,
        *filter(math.isfinite, bits),
        *ties,
        *huge,
        *tens,
    ]


def test_whole_numbers_and_lists_read_as_in_python(open_page: Any) -> None:
    whole: list[Cell] = [0, 7, -1234, 12_345_678, 10**15, None, (4, 3), (), tuple(range(9)), *range(400)]
    page = open_page(page_of(whole_column("count", whole), whole_column("parameters", whole)))
    for at, kind in enumerate(("count", "parameters")):
        block = page.locator(".table").nth(at)
        block.locator("th button").click()
        block.locator("th button").click()
        page.wait_for_selector(f"#{block.get_attribute('id')} th[aria-sort=descending]")
        page.wait_for_timeout(50)
        largest = sorted(
            (value for value in whole if value not in (None, ())),
            key=lambda value: -(max(value) if isinstance(value, tuple) else value),  # type: ignore[operator, type-var]
        )
        assert block.locator("tbody td").all_inner_texts() == [show(value, kind) for value in largest[:100]]  # type: ignore[arg-type]


def test_the_words_of_the_script_are_those_of_the_page(whole: str) -> None:
    text = whole.split('id="page-rules">')[1].split("</script>")[0]
    assert json.loads(text)["rules"]["nothing"] == show(None, "text")
