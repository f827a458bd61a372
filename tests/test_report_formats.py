"""Human units, and padding that knows wide characters."""

from __future__ import annotations

import math

import pytest
from rich.cells import cell_len

from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.report.document import Cell, Kind
from pipesim.report.formats import clean, human_scale, pad, show
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS
from pipesim.results.schema import COLUMNS


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (20.2e9, "bytes", "20.2 GB"),
        (122_840_000_000, "bytes", "122.8 GB"),
        (786_432, "bytes", "786.4 kB"),
        (512, "bytes", "512 B"),
        (0, "bytes", "0 B"),
        (105.3, "seconds", "105.30 s"),
        (0.0043, "seconds", "4.3 ms"),
        (2.5e-6, "seconds", "2.5 µs"),
        (0.0794, "percent", "7.9 %"),
        (0, "percent", "0.0 %"),
        (-1e-17, "percent", "0.0 %"),
        (3_670_000_000, "parameters", "3.67B"),
        (124_439_808, "parameters", "124.4M"),
        (155.2e12, "tflops", "155.2 TFLOP/s"),
        (True, "flag", "yes"),
        (False, "flag", "no"),
        (12_345, "count", "12,345"),
        (28.5, "number", "28.5"),
        (33.0, "number", "33"),
        (1.234e-8, "number", "1.23e-8"),
        ((4, 3, 2, 1), "count", "4 3 2 1"),
        (tuple(range(48, 0, -1)), "count", "48 47 … 1"),
        ("4 × 12 × 8", "text", "4 × 12 × 8"),
        ("n/a", "bytes", "n/a"),
    ],
)
def test_values_read_as_people_write_them(value: Cell, kind: Kind, text: str) -> None:
    assert show(value, kind) == text


@pytest.mark.parametrize(
    "kind", ["text", "count", "number", "parameters", "bytes", "seconds", "percent", "tflops", "flag"]
)
def test_what_is_missing_is_a_dash_in_every_kind(kind: Kind) -> None:
    assert show(None, kind) == "–"


def test_not_a_number_is_a_dash() -> None:
    assert show(math.nan, "seconds") == "–"


def test_a_value_that_rounds_to_a_thousand_takes_the_next_unit() -> None:
    assert show(999_960_000, "bytes") == "1.0 GB"
    assert show(999_940_000, "bytes") == "999.9 MB"


def test_an_axis_divides_by_the_unit_it_names() -> None:
    assert human_scale("bytes", 8e10) == (1e9, "GB")
    assert human_scale("percent", 0.4) == (0.01, "%")
    assert human_scale("count", 12) == (1.0, "")


def test_padding_counts_wide_characters_as_two_cells() -> None:
    assert pad("流水", 6) == "流水  "
    assert pad("流水", 6, "right") == "  流水"
    assert pad("ab", 5, "center") == " ab  "
    assert {cell_len(pad(text, 8)) for text in ("abc", "流水线", "a流b")} == {8}


def test_padding_cuts_nothing() -> None:
    assert pad("流水线", 3) == "流水线"


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert clean("a\x1b[31mb\tc\nd　e") == "a\ufffd[31mb c\nd　e"


def test_every_item_of_an_estimate_has_its_words_in_its_order() -> None:
    assert list(TIME_WORDS) == list(TIME_ITEMS)
    assert list(MEMORY_WORDS) == list(MEMORY_ITEMS)
    assert {f"{item}_s" for item in TIME_ITEMS} | {f"{item}_bytes" for item in MEMORY_ITEMS} <= set(COLUMNS)
