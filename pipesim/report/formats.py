"""How values read: human units for every ``Kind`` of a report's columns, and padding that knows wide characters.

Pages' scripts format what they show later: ``templates/formats.js`` gets the tables below and does what ``show`` does, which
a browser test compares.
"""

from __future__ import annotations

import itertools
import math
import re
from decimal import Decimal
from typing import Literal

from rich.cells import cell_len

from pipesim.report.document import Cell, Kind

NOTHING = "–"

UNITS: dict[str, tuple[tuple[float, str, int], ...]] = {
    "bytes": ((1e15, " PB", 1), (1e12, " TB", 1), (1e9, " GB", 1), (1e6, " MB", 1), (1e3, " kB", 1), (1, " B", 0)),
    "seconds": ((1, " s", 2), (1e-3, " ms", 1), (1e-6, " µs", 1), (1e-9, " ns", 1)),
    "parameters": ((1e12, "T", 2), (1e9, "B", 2), (1e6, "M", 1), (1e3, "K", 1), (1, "", 0)),
    "percent": ((0.01, " %", 1),),
    "tflops": ((1e12, " TFLOP/s", 1),),
}
"""Size of a unit in SI, its sign and its decimals, the largest first."""

LONGEST_TUPLE = 8
"""Longer ones show their first two parts and the last."""

RULES: dict[str, object] = {"units": UNITS, "nothing": NOTHING, "longest": LONGEST_TUPLE}
"""What pages' scripts go by."""

_UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


def show(value: Cell, kind: Kind) -> str:
    """The value as a person reads it, the same in every language; what is missing or not a number is a dash.

    >>> show(20.2e9, "bytes"), show(0.0794, "percent"), show(3_670_000_000, "parameters")
    ('20.2 GB', '7.9 %', '3.67B')
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return _tuple(value)
    if kind == "flag" or isinstance(value, bool):
        return "yes" if value else "no"
    if not math.isfinite(value):
        return NOTHING if math.isnan(value) else "∞" if value > 0 else "-∞"
    if kind in UNITS:
        return _with_unit(value, kind)
    return f"{value:,}" if isinstance(value, int) else _number(value)


_LIST = re.compile(r"\[\d+(?:,\s?\d+){5,}\]")


def with_runs(text: str) -> str:
    """A text whose long lists of whole numbers are shortened, to be read and not to be typed.

    >>> with_runs("partition=[9,9,9,9,9,8,9,9]")
    'partition=[9×5, 8, 9×2]'
    """

    def shortened(found: re.Match[str]) -> str:
        numbers = found[0][1:-1].replace(" ", "").split(",")
        runs = ((number, len(list(same))) for number, same in itertools.groupby(numbers))
        return f"[{', '.join(f'{number}×{many}' if many > 1 else number for number, many in runs)}]"

    return _LIST.sub(shortened, text)


def human_scale(kind: Kind, largest: float) -> tuple[float, str]:
    """The unit for an axis that reaches ``largest``: what to divide by, and the unit's sign ("" for bare numbers)."""
    if kind not in UNITS:
        return 1.0, ""
    size, sign, _ = _unit(largest, kind)
    return float(size), sign.strip()


def pad(text: str, width: int, align: Literal["left", "right", "center"] = "left") -> str:
    """Fills up to ``width`` terminal cells; East Asian wide characters take two. Longer text is left as it is."""
    spare = max(0, width - cell_len(text))
    before = {"left": 0, "right": spare, "center": spare // 2}[align]
    return " " * before + text + " " * (spare - before)


def clean(text: str) -> str:
    """Without control characters, which XML forbids and terminals obey, and without signs that turn the direction of
    reading, with which a name can look like another; line feeds stay.
    """
    return _UNSEEN.sub(lambda sign: " " if sign[0] == "\t" else "\N{REPLACEMENT CHARACTER}", text)


def _unit(value: float, kind: Kind) -> tuple[float, str, int]:
    """The largest unit of which the value has at least one, counting what would be rounded up to 1000 of the next."""
    units = UNITS[kind]
    if value == 0:
        return next((unit for unit in units if unit[0] == 1), units[-1])
    return next((unit for unit in units if abs(value) >= 0.99995 * unit[0]), units[-1])


def _with_unit(value: float, kind: Kind) -> str:
    size, sign, decimals = _unit(value, kind)
    if value == 0 and size == 1:
        return f"0{sign}"
    return f"{round(value / size, decimals) + 0.0:,.{decimals}f}{sign}"  # + 0.0 turns -0.0 into 0.0


def _number(value: float) -> str:
    """Four significant digits, all of them before the point; tiny and huge values with an exponent."""
    if value == 0:
        return "0"
    exponent = Decimal(value).adjusted()  # exact, as a logarithm is not beside powers of ten
    if not -4 <= exponent < 12:
        mantissa, power = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(power)}"
    text = f"{value:,.{max(0, 3 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _tuple(values: tuple[int, ...]) -> str:
    if not values:
        return NOTHING
    if len(values) > LONGEST_TUPLE:
        return f"{values[0]} {values[1]} … {values[-1]}"
    return " ".join(map(str, values))
