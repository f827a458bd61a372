"""The runner: one layout, a sweep (``-m``), a declared grid or a demo becomes a study. ``--help`` teaches the rest."""

import os
import sys
import tempfile
from pathlib import Path

import hydra

from pipesim import compose, config, errors, study
from pipesim.plan.space import Space

config.register_schema()
ask = hydra.main(config_path=str(config.CONF_DIR), config_name="config", version_base=compose.VERSION_BASE)(
    compose.record
)


def main() -> None:
    """Hydra composes what is asked; the study answers it."""
    with tempfile.TemporaryDirectory(prefix="pipesim-") as jobs:
        os.environ[compose.JOBS_VARIABLE] = jobs
        sys.argv[1:] = compose.with_quoted_texts(compose.with_canonical_schedules(sys.argv[1:]))
        ask()
        asked = compose.recorded(Path(jobs))
        if asked is not None:
            study.run([Space(base=each) for each in asked.configs], asked.overrides, asked.swept)


if __name__ == "__main__":
    sys.exit(errors.guarded(main))
