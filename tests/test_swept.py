"""Rows of a sweep can be told apart, whatever was swept."""

import pytest

from pipesim import compose, study, swept


def asked(**axes):
    with compose.composer() as (make, loader):
        return list(compose.expand(make, loader, [], axes))


def test_a_key_without_a_column_is_named_with_its_value():
    rows = study.evaluate(asked(**{"costs.hbm_efficiency": ["0.5", "0.7"], "parallel.t": ["4", "8"]}))
    assert [row["settings"] for row in rows] == [
        "costs.hbm_efficiency=0.5", "costs.hbm_efficiency=0.5", "costs.hbm_efficiency=0.7", "costs.hbm_efficiency=0.7",
    ]  # fmt: skip


def test_what_a_choice_brings_along_is_not_named():
    spaces = asked(model=["llama3_70b", "gpt3_175b"], schedule=["gpipe", "1f1b"])
    assert [space.told for space in swept.with_told(spaces)] == [()] * len(spaces)


@pytest.mark.parametrize("key", ["model.layers", "cluster.gpus", "cluster.memory_gb"])
def test_rows_of_any_swept_key_differ(key):
    rows = study.evaluate(asked(**{key: ["96", "192"]}))
    assert len({row["settings"] for row in rows}) == 2
