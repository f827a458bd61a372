"""Re-renders a study from its table, or compares several: ``python experiments/report.py STUDY [STUDY …]``."""

import argparse
import sys
from pathlib import Path

from pipesim import comparing, errors, study

EXAMPLES = """examples:
  python experiments/report.py outputs/bloom_176b-sweep
      writes its report and figures anew
  python experiments/report.py outputs/bloom_176b-sweep outputs/bloom_176b-sweep-2
      compares the second with the first: what is new, gone, changed and why, how sure
  python experiments/report.py A B C --out outputs/three
      compares B and C with A, in a folder of your choice"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Writes a study's reports and figures anew, from its table; compares several, each with the first.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, nargs="+", help="a study's folder, as run.py printed it")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where a comparison goes; else beside the first study, compare-A-B"
    )
    asked = parser.parse_args()
    if len(asked.study) > 1:
        comparing.compare(asked.study, asked.out)
    elif asked.out is not None:
        parser.error("--out is of a comparison, and one study is written anew where it is. Leave it out.")
    else:
        study.render_again(comparing.found(asked.study[0]))


if __name__ == "__main__":
    sys.exit(errors.guarded(main))
