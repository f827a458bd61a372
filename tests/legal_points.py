"""Points that the tests of rules share."""

from __future__ import annotations

import dataclasses
from typing import Any

from shapes import cluster

from pipesim.specs import CostConstants, ModelSpec, Moe, ParallelLayout, Point, Training

BLOOM = ModelSpec(
    name="bloom", layers=70, hidden=14336, heads=112, kv_heads=112, head_dim=128, ffn=57344, vocab=250880, context=2048,
    gated=False, bias=True, tied_embeddings=True, embedding_norm=True, final_norm=True, positions="alibi",
    norm="layernorm",
)  # fmt: skip
MIXTURE = dataclasses.replace(
    BLOOM, name="mixture", layers=32, heads=32, kv_heads=8, ffn=14336, vocab=32000, positions="rotary",
    moe=Moe(experts=8, top_k=2, ffn=14336),
)  # fmt: skip
TOY = dataclasses.replace(
    BLOOM, name="toy", layers=2, hidden=64, heads=4, kv_heads=4, head_dim=16, ffn=256, vocab=44, context=96,
    positions="learned",
)  # fmt: skip
MODELS = {model.name: model for model in (BLOOM, MIXTURE, TOY)}
CLUSTER = cluster(gpus=384)


def point(model: str = "bloom", schedule: str = "1f1b", costs: str = "full", gpus: int = 384, **changes: Any) -> Point:
    """BLOOM's layout with some of its layout's and training's values changed."""
    layout: dict[str, Any] = {"t": 4, "p": 12, "v": 1}
    training: dict[str, Any] = {"micro_batch": 2, "global_batch": 2048}
    for key, value in changes.items():
        (layout if key in ParallelLayout.__slots__ else training)[key] = value
    return Point(
        model=MODELS[model], cluster=dataclasses.replace(CLUSTER, gpus=gpus), layout=ParallelLayout(**layout),
        training=Training(**training), schedule=schedule, costs=CostConstants(kind=costs),  # type: ignore[arg-type]
    )  # fmt: skip
