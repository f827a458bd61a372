"""Re-renders a study from its table: ``python experiments/report.py STUDY``."""

import argparse
import sys
from pathlib import Path

from pipesim import errors, study


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a study's reports and figures anew, from its table.")
    parser.add_argument("study", type=Path, nargs="+", help="a study's folder, as run.py printed it")
    for folder in parser.parse_args().study:
        study.render_again(folder)


if __name__ == "__main__":
    sys.exit(errors.guarded(main))
