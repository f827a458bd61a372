"""Rows of a sweep can be told apart, whatever was swept."""

import pytest
from points import configs

from pipesim import compose, study, swept
from pipesim.plan.space import Space


def asked(**axes):
    with compose.composer() as (make, loader):
        return list(compose.expand(make, loader, [], axes))


def test_a_key_without_a_column_is_named_with_its_value():
    spaces = asked(**{"costs.hbm_efficiency": ["0.5", "0.7"], "parallel.t": ["4", "8"]})
    assert swept.settings(configs(spaces)) == [
        "costs.hbm_efficiency=0.5", "costs.hbm_efficiency=0.5", "costs.hbm_efficiency=0.7", "costs.hbm_efficiency=0.7",
    ]  # fmt: skip


def test_what_a_choice_brings_along_is_not_named():
    assert swept.settings(configs(asked(model=["llama3_70b", "gpt3_175b"], schedule=["gpipe", "1f1b"]))) == [None] * 4


@pytest.mark.parametrize("key", ["model.layers", "cluster.gpus", "cluster.memory_gb"])
def test_rows_of_any_swept_key_differ(key):
    rows = study.evaluate([Space(base=each) for each in asked(**{key: ["96", "192"]})])
    assert len({row["settings"] for row in rows}) == 2
