"""A progress bar for long studies: points done, their rate, the time left. Silent where nobody looks at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(total: int) -> Iterator[Callable[[int], None]]:
    """``advance(n)`` counts ``n`` more points done; drawn on standard error, and only if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} points/s")

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(
        BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), console=console, transient=True
    ) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.advance(task, count)
