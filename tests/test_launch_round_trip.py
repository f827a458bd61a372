"""Written arguments read back are the same layout, for random layouts that each framework runs."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from launch_points import MODELS, compared, points
from points import composed

from pipesim import launch, legality
from pipesim.checks import Invalid
from pipesim.launch import reading, torchtitan_reader
from pipesim.launch.values import point_of, values_of
from pipesim.specs import Point


def read_back(files: dict[str, str], like: Point) -> Point:
    """What the first file says, with another layout and recipe in the place of what it does not say."""
    form, found, content = reading.read(next(iter(files.values())))
    assert found.problems == found.unknown == [], (found.problems, found.unknown)
    values = found.values
    if form == "torchtitan":
        spec = torchtitan_reader.model_of(content)
        torchtitan_reader.finish_stages(content, spec.layers, values)
        own = values_of(dataclasses.replace(like, model=spec))
        values |= {key: value for key, value in own.items() if key.startswith("model.")}
    return legality.resolve(point_of(values, like))


def can_be_written(point: Point) -> bool:
    """Whether DeepSpeed has a word for where the layers lie; all else must be written."""
    try:
        launch.write(point)
    except Invalid as error:
        if not all("parallel.partition" in problem for problem in error.problems):
            raise
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("framework", MODELS)
@settings(max_examples=15)
@given(data=st.data())
def test_written_arguments_read_back_are_the_same_layout(framework: str, data: st.DataObject) -> None:
    point = data.draw(points(framework))
    assume(point is not None)
    assume(framework != "megatron_deepspeed" or can_be_written(point))  # where only some partitions have words
    files = launch.write(point)
    stranger = dataclasses.replace(composed(), cluster=point.cluster, stack=point.stack)
    stranger = dataclasses.replace(stranger, layout=dataclasses.replace(stranger.layout, partition="balanced"))
    back = read_back(files, stranger)
    said, asked = compared(back, framework), compared(point, framework)
    assert {key: (said.get(key), asked.get(key)) for key in said | asked if said.get(key) != asked.get(key)} == {}


@pytest.mark.parametrize("framework", MODELS)
@settings(max_examples=10)
@given(data=st.data())
def test_the_same_layout_is_written_in_the_same_bytes(framework: str, data: st.DataObject) -> None:
    point = data.draw(points(framework))
    assume(point is not None and can_be_written(point))
    assert launch.write(point) == launch.write(point)
