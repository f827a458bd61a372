"""A report's pictures as PNG and PDF, for papers and slides; signs that no font of this machine has are told."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

from pipesim.report import charts
from pipesim.report.charts.style import RC, Drawing
from pipesim.report.document import Document, Picture
from pipesim.report.figures import pictures
from pipesim.report.formats import clean
from pipesim.report.timeline import figure as timeline_figure

FORMATS = ("svg", "png", "pdf")
"""SVG is made in any case, for Markdown and for pages."""

_DOTS_PER_INCH = 200
_TRUE_TYPE, _TYPE_3 = 42, 3
"""How a PDF holds its letters. Publishers ask for TrueType; the usual Chinese fonts have PostScript outlines, which
matplotlib would write into a TrueType font where no viewer finds them.
"""
_CHINESE = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei", "SimHei", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip
"""Fonts with Chinese signs, the first that this machine has is taken."""

# no dates and no versions, so that the same picture is the same bytes
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def papers(document: Document, formats: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """File name to content of every picture in these formats, and what to know of them, a sentence each."""
    files: dict[str, bytes] = {}
    missing: dict[str, None] = {}
    for view in pictures(document):
        drawing = (
            charts.drawing(view) if isinstance(view, Picture) else timeline_figure.drawing(view, document.language)
        )
        for form in formats:
            if form != "svg":
                files[f"{view.slug}.{form}"], signs = saved(drawing, form)
                missing |= dict.fromkeys(signs)
    if not missing:
        return files, []
    shown = clean("".join(sorted(missing)))
    return files, [
        f"Warning: no font of this machine has {len(missing)} of the signs of these pictures ({shown[:40]}), which show as boxes. "
        "Install one, such as fonts-noto-cjk for Chinese; SVG needs none."
    ]


def saved(drawing: Drawing, form: str) -> tuple[bytes, list[str]]:
    """The picture, and the signs that no font has. In PDF text stays text, with the letters of its fonts inside."""
    content, signs = _saved(drawing, form, ["DejaVu Sans"], _TRUE_TYPE)
    if signs and (found := _chinese()):
        return _saved(drawing, form, ["DejaVu Sans", *found], _TYPE_3)
    return content, signs


def _saved(drawing: Drawing, form: str, fonts: list[str], kind: int) -> tuple[bytes, list[str]]:
    import matplotlib

    out = io.BytesIO()
    settings = RC | {"font.family": fonts, "pdf.fonttype": kind, "savefig.dpi": _DOTS_PER_INCH}
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        drawing.figure().savefig(out, format=form, metadata=_METADATA[form])
    return out.getvalue(), [_sign(str(each.message)) for each in told if "missing from font" in str(each.message)]


def _sign(message: str) -> str:
    """Of matplotlib's "Glyph 24635 (…) missing from font(s) DejaVu Sans."."""
    return chr(int(message.split()[1]))


def _chinese() -> list[str]:
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _CHINESE if name in known][:1]
