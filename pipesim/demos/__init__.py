"""The demos: what each shows is built here as sections of one report, from the config alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipesim.demos.activation_memory import activation_memory
from pipesim.demos.bloom_3d import bloom_3d
from pipesim.demos.bubble import bubble
from pipesim.demos.claims import speaker
from pipesim.demos.real_pipeline import real_pipeline
from pipesim.demos.schedule_zoo import schedule_zoo
from pipesim.demos.timelines import timelines
from pipesim.report.document import Document, Section
from pipesim.results.schema import Row

_DEMOS: dict[str, Callable[[Mapping[str, Any]], tuple[Section, list[Row]]]] = {
    "timelines": timelines,
    "bubble": bubble,
    "activation_memory": activation_memory,
    "real_pipeline": real_pipeline,
    "bloom_3d": bloom_3d,
    "schedule_zoo": schedule_zoo,
}


def run(config: Mapping[str, Any]) -> tuple[Document, list[Row]]:
    """The report of every demo that is not null in a plain config, in its language, and a row for every case."""
    done = [demo(config) for name, demo in _DEMOS.items() if config["demo"].get(name) is not None]
    say = speaker(config["lang"])
    document = Document(
        title=say(
            "Pipeline parallelism: how large is the bubble, and what does it cost to shrink it?",
            "流水线并行：气泡有多大，缩小它要付出什么代价？",
        ),
        sections=tuple(section for section, _ in done),
        language=config["lang"],
    )
    return document, [row for _, rows in done for row in rows]
