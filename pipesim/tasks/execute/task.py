"""Task: a schedule really runs on a small GPT, and its measured time stands beside the simulated one. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid
from pipesim.tasks import Done

NEEDED = ("torch", "safetensors")
"""What the extra ``execute`` installs."""


def execute(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for what cannot run, before anything starts, and ``RankFailed`` for a rank that fails."""
    try:
        from pipesim.tasks.execute import executed
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise Invalid(
            [
                f"experiment=execute really runs a model and needs {error.name}, which is not installed. Install it: "
                "pip install 'pipesim[execute]', or in a checkout: pip install -e '.[execute]'."
            ]
        ) from None
    return executed.run(config["task"]["execute"])
