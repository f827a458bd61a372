"""Written arguments read back are the same layout, for random layouts that each framework runs."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from launch_points import MODELS, compared, points
from points import composed

from pipesim import config, launch, legality
from pipesim.checks import Invalid
from pipesim.launch import reading, torchtitan
from pipesim.launch.values import point_of, values_of
from pipesim.specs import Point


def read_back(files: dict[str, str], like: Point) -> Point:
    """What the first file says, with another layout and recipe in the place of what it does not say."""
    form, found, content = reading.read(next(iter(files.values())))
    assert found.problems == found.unknown == [], (found.problems, found.unknown)
    values = found.values
    if form == "torchtitan":
        spec = config.build_model(config.library("model")[torchtitan.model_of(content)])
        torchtitan.finish_stages(content, spec.layers, values)
        own = values_of(dataclasses.replace(like, model=spec))
        values |= {key: value for key, value in own.items() if key.startswith("model.")}
    return legality.resolve(point_of(values, like))


@pytest.mark.parametrize("framework", MODELS)
@settings(max_examples=150)
@given(data=st.data())
def test_written_arguments_read_back_are_the_same_layout(framework: str, data: st.DataObject) -> None:
    point = data.draw(points(framework))
    assume(point is not None)
    try:
        files = launch.write(point)
    except Invalid as error:
        assert framework == "megatron_deepspeed" and "parallel.partition" in str(error) or "ends" in str(error), error
        return
    stranger = dataclasses.replace(composed(), cluster=point.cluster, stack=point.stack)
    stranger = dataclasses.replace(stranger, layout=dataclasses.replace(stranger.layout, partition="balanced"))
    back = read_back(files, stranger)
    assert compared(back, framework) == compared(point, framework)


@pytest.mark.parametrize("framework", MODELS)
@settings(max_examples=20)
@given(data=st.data())
def test_the_same_layout_is_written_in_the_same_bytes(framework: str, data: st.DataObject) -> None:
    point = data.draw(points(framework))
    assume(point is not None)
    try:
        assert launch.write(point) == launch.write(point)
    except Invalid:
        assume(False)
