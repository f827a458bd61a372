"""The runner's ``--help``: Hydra fills the template of ``conf/config.yaml``, and long lines are broken where a terminal would."""

from __future__ import annotations

import contextlib
import io
import shutil
import textwrap
from collections.abc import Iterator, Sequence

WIDEST = 100
"""Columns of text that reads well."""


@contextlib.contextmanager
def fitted(words: Sequence[str]) -> Iterator[None]:
    """What is printed inside fits the terminal, if ``words`` ask for help."""
    if not {"--help", "-h"} & set(words):
        yield
        return
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:  # Hydra leaves with SystemExit
        columns = min(WIDEST, shutil.get_terminal_size().columns)
        print("\n".join(fit(line, columns) for line in printed.getvalue().rstrip().splitlines()), flush=True)


def fit(line: str, columns: int) -> str:
    """A line broken between words, the rest of it indented.

    >>> print(fit("cluster: aws_p5, dgx_a100, dgx_h100", 24))
    cluster: aws_p5,
        dgx_a100, dgx_h100
    """
    if len(line) <= columns:
        return line
    return textwrap.fill(line, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
