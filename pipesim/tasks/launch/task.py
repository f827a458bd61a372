"""Task: a layout as the files that start it under a training framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipesim import config as configs
from pipesim import launch as launching
from pipesim import legality
from pipesim.checks import Invalid, suggest
from pipesim.report.document import Document, Listing, Section
from pipesim.tasks import Done


def launch(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with everything that keeps the framework from running the layout."""
    to = config["task"]["launch"]["to"] or config["stack"]["framework"]
    if to not in launching.WRITERS:
        near = suggest(str(to), launching.WRITERS) or f" Nearest: task.launch.to={' or '.join(launching.WRITERS)}."
        raise Invalid([f"task.launch.to={to} has no arguments that are written.{near}"])
    point = legality.resolve(configs.build(config))
    point = dataclasses.replace(point, stack=dataclasses.replace(point.stack, framework=to))
    files = launching.write(point)
    many = "one file" if len(files) == 1 else f"{len(files)} files"
    start = "starts" if len(files) == 1 else "start"
    said = (
        f"{many.capitalize()} in launch/ of this study {start} this layout under {to}. Data, checkpoints and the learning rate are "
        "placeholders; what decides time and memory is as asked, and a note at the top names whatever has no word there."
    )
    listings = tuple(Listing(title=f"launch/{name}", text=text) for name, text in files.items())
    document = Document(
        title=f"{point.model.name} under {to}", sections=(Section(title="How to start it", blocks=(said, *listings)),)
    )
    return Done(document=document, files={f"launch/{name}": text for name, text in files.items()})
