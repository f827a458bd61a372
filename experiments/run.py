"""The runner: one layout, a sweep (``-m``), a declared grid or a demo becomes a study. ``--help`` teaches the rest."""

import os
import sys
import tempfile
from pathlib import Path

import hydra

from pipesim import compose, config, errors, helping, safe_config, study

config.register_schema()
ask = hydra.main(config_path=str(config.CONF_DIR), config_name="config", version_base=compose.VERSION_BASE)(
    compose.record
)


def main() -> None:
    """Hydra composes what is asked; the study answers it."""
    with tempfile.TemporaryDirectory(prefix="pipesim-") as jobs:
        sys.argv[1:] = compose.with_flags_last(sys.argv[1:])
        safe_config.refuse_unsafe(sys.argv[1:])
        os.environ[compose.JOBS_VARIABLE] = jobs
        sys.argv[1:] = compose.with_quoted_texts(compose.with_canonical_schedules(sys.argv[1:]))
        with helping.fitted(sys.argv[1:]):
            ask()
        asked = compose.recorded(Path(jobs))
        if asked is not None:
            study.run(*asked)


if __name__ == "__main__":
    sys.exit(errors.guarded(main))
