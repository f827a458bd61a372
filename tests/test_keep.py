"""What a keeper keeps is exactly what brute force over all rows finds, however they are cut into parts."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.checks import Invalid
from pipesim.plan.keep import FRONT, MOST_FAILED, Keeper
from pipesim.results import schema

CONF = {"top": 2, "by": "step_time_s", "per": ["model", "cluster"], "pareto": True}
SIZES = st.integers(1, 4).map(float)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(["ok", "ok", "ok", "infeasible", "invalid", "failed"]),
            "model": st.sampled_from(["a", "b", None]),
            "cluster": st.sampled_from(["x", "y"]),
            "gpus": st.integers(1, 4),
            "step_time_s": SIZES,
            "memory_bytes": SIZES,
            "mfu": SIZES | st.none(),
        }
    ),
    max_size=60,
)


def table(rows):
    columns = {name: [row.get(name) for row in rows] for name in schema.COLUMNS}
    return pa.table(columns, schema=schema.SCHEMA)


def kept(rows, cuts, **conf):
    keeper = Keeper(CONF | conf)
    bounds = [0, *sorted(cuts), len(rows)]
    for start, stop in itertools.pairwise(bounds):
        keeper.add(table(rows[start:stop]))
    return keeper


def brute(rows, top, by, per, pareto):
    fit = [row for row in rows if row["status"] == "ok"]
    best, sign = set(), -1 if by.startswith("-") else 1
    for group in {tuple(row[key] for key in per) for row in fit}:
        mine = [row for row in fit if tuple(row[key] for key in per) == group]
        value = by.lstrip("-")
        ranked = sorted(mine, key=lambda row: (row[value] is None, sign * (row[value] or 0)))
        best |= {row["point_id"] for row in ranked[:top]}
        for row in mine if pareto else []:
            mark = [row[name] for name in FRONT]
            others = ([other[name] for name in FRONT] for other in mine)
            if not any(other != mark and all(o <= m for o, m in zip(other, mark, strict=True)) for other in others):
                best.add(row["point_id"])
    return [row for row in rows if row["point_id"] in best or row["status"] == "failed"]


@pytest.mark.slow
@given(
    ROWS,
    st.lists(st.integers(0, 60), max_size=3),
    st.integers(0, 3),
    st.sampled_from(["step_time_s", "-mfu"]),
    st.sampled_from([[], ["model"], ["model", "cluster"]]),
    st.booleans(),
)
def test_what_is_kept_is_what_brute_force_finds(rows, cuts, top, by, per, pareto):
    rows = [row | {"point_id": str(k)} for k, row in enumerate(rows)]
    conf = {"top": top, "by": by, "per": per, "pareto": pareto or top == 0}
    keeper = kept(rows, [cut for cut in cuts if cut <= len(rows)], **conf)
    assert keeper.table().to_pylist() == table(brute(rows, **conf)).to_pylist()
    assert keeper.counts.total() == len(rows)
    assert keeper.counts["ok"] == sum(row["status"] == "ok" for row in rows)


def test_of_many_failures_the_first_are_kept():
    rows = [{"status": "failed", "point_id": str(k)} for k in range(3 * MOST_FAILED)]
    keeper = kept(rows, [MOST_FAILED // 2, 2 * MOST_FAILED])
    assert keeper.table()["point_id"].to_pylist() == [str(k) for k in range(MOST_FAILED)]
    assert keeper.counts == {"failed": 3 * MOST_FAILED}


def test_without_rows_the_table_is_empty_and_has_the_schema():
    assert Keeper(CONF).table().schema.names == list(schema.COLUMNS)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"by": "step_time"}, ["grid.keep.by", "step_time ", "step_time_s"]),
        ({"by": "-verdict"}, ["grid.keep.by", "verdict"]),
        ({"per": ["modell"]}, ["grid.keep.per", "modell", "Nearest: model"]),
        ({"top": -1}, ["grid.keep.top=-1"]),
        ({"top": 0, "pareto": False}, ["grid.keep.top=0 and grid.keep.pareto=false keep no row", "Nearest: top=1"]),
    ],
)
def test_what_cannot_be_kept_by_is_told(conf, words):
    with pytest.raises(Invalid) as caught:
        Keeper(CONF | conf)
    assert all(word in str(caught.value) for word in words)
