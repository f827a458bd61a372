"""One formula, any shape: many points priced as arrays are what each is alone, to the last bit."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from points import SMALL, composed, point, rows

from pipesim import config, legality
from pipesim.costs import parameters, traffic
from pipesim.costs.columns import kind, stacked
from pipesim.costs.prices import Prices
from pipesim.estimate import evaluate, points_of, price_key, priced
from pipesim.spec_config import ModelConf
from pipesim.specs import ModelSpec, Point

LAW = settings(deadline=None, max_examples=12)


def _model(path: Path) -> ModelSpec:
    """Without Hydra, which takes seconds for all: they are read while tests are collected."""
    read = OmegaConf.merge(OmegaConf.structured(ModelConf), OmegaConf.load(path))
    return config.build_model(cast("dict[str, Any]", OmegaConf.to_container(read)))


MODELS = [_model(path) for path in sorted(Path(config.CONF_DIR / "model").glob("*.yaml"))]
KINDS: dict[Any, list[ModelSpec]] = {}
for _each in MODELS:
    KINDS.setdefault(kind(_each), []).append(_each)


@pytest.mark.slow
@LAW
@given(
    data=st.data(),
    p=st.sampled_from([1, 2, 4, 6]),
    per_micro_batch=st.sampled_from([4, 8, 16]),
    global_batch=st.sampled_from([64, 128]),
    zero=st.integers(0, 3),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
    costs=st.sampled_from(["full", "lecture"]),
)
def test_points_evaluated_together_equal_each_alone_to_the_last_bit(
    data: st.DataObject, p: int, per_micro_batch: int, costs: str, **shape: Any
) -> None:
    # micro_batch x d is the same for all, so they share a schedule and are evaluated as one array
    cuts = data.draw(
        st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4])), min_size=2, max_size=6)
    )
    lecture = ("costs=lecture",) if costs == "lecture" else ()
    points = [
        point("model=mixtral_8x7b", "cluster=dgx_h100", "training=megatron", *lecture, "training.seq_length=2048",
              t=t, p=p if costs == "full" or 34 % p == 0 else 2, micro_batch=b, d=per_micro_batch // b,
              e=e if costs == "full" else 1,
              gpus=4096, **shape)
        for (t, b), e in zip(cuts, data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=6, max_size=6)), strict=False)
        if (per_micro_batch // b) % e == 0
    ]  # fmt: skip
    together = rows(*points)
    assert all(each["status"] in ("ok", "infeasible") for each in together)
    assert len({price_key(legality.resolve(each)) for each in points}) <= 1
    assert together == [rows(each)[0] for each in points]


@pytest.mark.parametrize("models", KINDS.values(), ids=lambda models: f"{models[0].name} and {len(models) - 1} more")
def test_models_of_one_kind_are_counted_together_as_each_alone(models: list[ModelSpec]) -> None:
    together = stacked(models)
    counts = [
        parameters.total_parameters, parameters.active_parameters, parameters.embedding_parameters,
        parameters.head_parameters, parameters.final_norm_parameters, parameters.dense_layers, parameters.moe_layers,
    ]  # fmt: skip
    for count in counts:
        many = np.broadcast_to(np.asarray(count(together), np.float64), (len(models), 1))
        assert many[:, 0].tolist() == [float(count(model)) for model in models], count.__name__
    for moe in {False, models[0].moe is not None}:
        layer = parameters.layer_parameters(together, moe)
        for part in ("sharded", "replicated", "expert"):
            many = np.broadcast_to(np.asarray(getattr(layer, part), np.float64), (len(models), 1))
            assert many[:, 0].tolist() == [float(getattr(parameters.layer_parameters(m, moe), part)) for m in models]


@pytest.mark.parametrize("models", KINDS.values(), ids=lambda models: f"{models[0].name} and {len(models) - 1} more")
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_models_of_one_kind_are_priced_together_as_each_alone(models: list[ModelSpec], zero: int) -> None:
    base = point("cluster=dgx_h100", "training=megatron", "stack=torchtitan", "training.seq_length=64",
                 t=1, p=2, d=8, zero=zero, global_batch=32, micro_batch=1, recompute="full", recompute_layers=1)  # fmt: skip
    points = [legality.resolve(dataclasses.replace(base, model=model)) for model in models]
    together = evaluate(points)
    for i, each in enumerate(points):
        alone = evaluate([each])
        for name in ("seconds", "bytes"):
            many, one = getattr(together, name), getattr(alone, name)
            assert {item: values[i] for item, values in many.items()} == {
                item: values[0] for item, values in one.items()
            }


def some_points(count: int) -> list[Point]:
    """Points of one price key: models of one kind, any degrees and batches, a schedule of 16 micro-batches."""
    draw, models = random.Random(0), KINDS[kind(composed(*SMALL).model)]
    base = point(
        *SMALL, "schedule=interleaved_1f1b", gpus=2**20, p=2, v=2, zero=1, recompute="full", attention="unfused"
    )
    made = []
    for _ in range(count):
        d, micro_batch, model = draw.choice([1, 3, 8, 64]), draw.choice([1, 2, 4]), draw.choice(models)
        layout = dataclasses.replace(base.layout, t=draw.choice([1, 2, 4]), d=d, c=draw.choice([1, 2]))
        training = dataclasses.replace(
            base.training, micro_batch=micro_batch, global_batch=micro_batch * d * 16, seq_length=draw.choice([1024, 4096]),
            recompute_layers=draw.choice([None, 1, 5, (1, 2, 3, 4)]),
        )  # fmt: skip
        made.append(legality.resolve(dataclasses.replace(base, model=model, layout=layout, training=training)))
    return made


@pytest.mark.slow
def test_thousands_of_points_with_several_models_are_priced_as_each_alone() -> None:
    points = some_points(3000)
    assert {price_key(each) for each in points} == {price_key(points[0])}
    assert len({each.model.name for each in points}) > 2
    together = priced(points_of(points))
    for i in range(0, len(points), 60):
        alone = priced(points_of([points[i]]))
        for field in dataclasses.fields(Prices):
            many, one = getattr(together, field.name), getattr(alone, field.name)
            if field.name == "seconds":
                shape = together.parameters.shape
                for op, single in zip(many, one, strict=True):
                    flat = {item: np.broadcast_to(values, shape)[i].tolist() for item, values in op.items()}
                    assert flat == {
                        item: np.broadcast_to(values, (1, shape[1]))[0].tolist() for item, values in single.items()
                    }
            elif field.name == "collectives":
                taken = traffic.taken(many, np.array([i]), range(together.parameters.shape[1]))
                assert [str(each) for each in taken] == [str(each) for each in one]
            elif isinstance(many, np.ndarray):
                assert many[i].tolist() == one[0].tolist(), field.name
            else:
                assert many == one


@pytest.mark.slow
@LAW
@given(
    asked=st.lists(
        st.fixed_dictionaries(
            {
                "t": st.sampled_from([1, 2, 3, 4, 8]),
                "p": st.sampled_from([1, 2, 4, 5, 12]),
                "d": st.sampled_from([None, 1, 2, 3, 8]),
                "micro_batch": st.sampled_from([1, 2, 4]),
                "global_batch": st.sampled_from([48, 64]),
                "zero": st.integers(0, 3),
                "sequence_parallel": st.booleans(),
                "recompute": st.sampled_from(["none", "selective", "full"]),
                "schedule": st.sampled_from(["1f1b", "gpipe", "naive", "none"]),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_asked_point_is_a_row_in_its_place_whatever_its_company(asked: list[dict[str, Any]]) -> None:
    points = [point(*SMALL, **each, gpus=96) for each in asked]
    together = rows(*points)
    assert len(together) == len(points)
    assert together == [rows(each)[0] for each in points]
    assert {each["status"] for each in together} <= {"ok", "infeasible", "invalid"}
