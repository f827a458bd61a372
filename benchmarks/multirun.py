"""Claim: ``-m`` with 1,000 points takes at most 3 processor seconds more than with one, and 20,000 points under a minute."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import load, time_s

from pipesim import compose
from pipesim.plan.asked.space import total

ROOT = Path(__file__).parents[1]

SCHEDULES = "gpipe,1f1b,interleaved_1f1b,zb_h1,zbv"
SWEEPS: dict[str, tuple[str, ...]] = {
    "one point": ("parallel.t=1,",),
    "1,000 points of numbers": ("parallel.t=range(1,11)", "parallel.p=range(1,11)", "training.micro_batch=range(1,11)"),
    "1,000 points, 20 choices": (
        "model=bloom_176b,gpt3_175b", "cluster=jean_zay_a100,dgx_h100", f"schedule={SCHEDULES}", "parallel.t=range(1,6)",
        "parallel.p=range(1,11)",
    ),
    "20,000 points": ("parallel.t=range(1,21)", "parallel.p=range(1,101)", "training.micro_batch=range(1,11)"),
    "1,000,000 points": ("parallel.t=range(1,101)", "parallel.p=range(1,101)", "training.micro_batch=range(1,101)"),
}  # fmt: skip
"""What is asked; the first, one point that is swept, is what the others are compared with."""

MOST_RUN = 20_000
"""Points up to which the whole command is run, not its composing alone."""


def axes(words: tuple[str, ...]) -> dict[str, list[str]]:
    found = {}
    for key, _, values in (word.partition("=") for word in words):
        if values.startswith("range("):
            first, last = values.removeprefix("range(").removesuffix(")").split(",")
            found[key] = [str(n) for n in range(int(first), int(last))]
        else:
            found[key] = values.strip(",").split(",")
    return found


def command_s(words: tuple[str, ...]) -> float:
    """Processor seconds of the whole command, with all that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "experiments/run.py", "-m", *(word.rstrip(",") for word in words)]
        subprocess.run([*command, f"study.dir={folder}/study"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    print(load())
    one_s = 0.0
    with compose.composer() as (make, loader):
        hydras_s, _ = time_s(lambda: make(["parallel.t=1"]), runs=5)
        print(f"Hydra alone composes one job in {hydras_s:.3f} s, and each job of its own sweeper twice")
        for name, words in SWEEPS.items():
            asked = axes(words)
            best_s, _ = time_s(lambda: compose.expand(make, loader, [], asked), runs=3)  # noqa: B023
            points = total(compose.expand(make, loader, [], asked))
            line = f"{name:26}: composed in {best_s:.2f} s (Hydra's own sweeper {2 * points * hydras_s:,.0f} s)"
            if points <= MOST_RUN:
                whole_s = command_s(words)
                one_s = one_s or whole_s
                limit_s = 3.0 if points <= 1_000 else 60.0
                line += f"; the command {whole_s:.1f} s, {whole_s - one_s:.1f} s more than for one, limit {limit_s:.0f}"
                line += ": met" if whole_s - one_s <= limit_s else ": MISSED"
            print(line, flush=True)


if __name__ == "__main__":
    main()
