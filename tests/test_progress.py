"""The progress bar shows on a terminal and nowhere else."""

import io

from pipesim import progress


def test_nothing_is_drawn_where_nobody_looks(capsys):
    with progress.bar(10) as advance:
        advance(4)
        advance(6)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_points_rate_and_time_left(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar(1000) as advance:
        for _ in range(4):
            advance(250)
    assert "1000/1000" in terminal.getvalue()
