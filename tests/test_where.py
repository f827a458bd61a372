"""Conditions of a grid: what holds, what is refused, and what the words in them stand for."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim import compose
from pipesim.checks import Invalid
from pipesim.plan.asked import names, where
from pipesim.plan.asked.space import Axis, Slice, Space

COLUMNS = {
    "t": np.array([1, 2, 4, 8, 16]),
    "p": 4,
    "gpus": 32,
    "gpus_per_node": 8,
    "recompute": np.array(["full", "none", "full", "none", "full"]),
    "sequence_parallel": np.array([True, False, True, False, True]),
    "cluster.memory_gb": 80.0,
}


@pytest.mark.parametrize(
    ("condition", "holding"),
    [
        ("t <= gpus_per_node", [1, 2, 4, 8]),
        ("t * p <= gpus", [1, 2, 4, 8]),
        ("1 < t <= 8 and recompute == 'full'", [4]),
        ("t in [1, 16] or not sequence_parallel", [1, 2, 8, 16]),
        ("recompute not in ('full', 'selective')", [2, 8]),
        ("sequence_parallel == true", [1, 4, 16]),
        ("gpus / t == 8", [4]),
        ("gpus // (t + 1) % 2 == 0 and -t < 0", [1, 2, 4]),
        ("2 ** t < cluster.memory_gb", [1, 2, 4]),
        ("p != 4", []),
    ],
)
def test_a_condition_holds_where_its_arithmetic_says(condition, holding):
    found = np.broadcast_to(where.holds(condition, COLUMNS), (5,))
    assert COLUMNS["t"][found].tolist() == holding


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("t <= gpu_per_node", ["gpu_per_node is no name", "Nearest: gpus_per_node"]),
        ("recompute == full", ["full is no name", "quotes"]),
        ("t", ["a number, no condition"]),
        ("'full'", ["a text, no condition"]),
        ("t == 'full'", ["'full' is a text, where a number is needed"]),
        ("recompute < 'a'", ["recompute is a text"]),
        ("t and p", ["t is a number, where true or false"]),
        ("t in 4", ["4 must be a list"]),
        ("t % (t - 1) == 0", ["cannot be computed"]),
        ("9 ** 9 ** 9 < t", ["overflow"]),
        ("__import__('os').system('x') == 0", ["cannot stand here"]),
        ("t.__class__ == 1", ["t.__class__ is no name"]),
        ("(lambda: 1)() == 1", ["cannot stand here"]),
        ("[x for x in t] == 1", ["cannot stand here"]),
        ("t[0] == 1", ["cannot stand here"]),
        ("(t := 1) == 1", ["cannot stand here"]),
        ("t ==", ["is no condition", "Nearest"]),
        ("", ["is no condition"]),
        ("\0", ["is no condition"]),
        ("(" * 200, ["is no condition"]),
        ("t == " + "1" * 1000, ["characters; at most"]),
        (f"t < {'9' * 290}", []),
    ],
)
def test_what_is_no_condition_is_refused_with_the_word_that_is_wrong(condition, words):
    if not words:
        assert where.holds(condition, COLUMNS).all()
        return
    with pytest.raises(Invalid) as caught:
        where.holds(condition, COLUMNS)
    assert str(caught.value).startswith("grid.where: ")
    assert all(word in str(caught.value) for word in words)


@given(
    st.text(max_size=80)
    | st.lists(
        st.sampled_from(
            ["t", "p", "1", "2", "<", "<=", "+", "%", "/", "(", ")", "and", "not", "in", "[", "]", ",", "'a'", ".", "-"]
        ),
        max_size=20,
    ).map(" ".join)
)
def test_any_text_is_a_condition_or_refused(condition):
    try:
        assert where.holds(condition, COLUMNS).dtype == bool
    except Invalid as error:
        assert error.problems


def test_the_deepest_condition_is_read():
    assert where.holds("-" * (where.LONGEST - 5) + "t < 0", COLUMNS).shape == (5,)


WHOLE = st.integers(1, 64)
SIGNS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge}


@given(WHOLE, WHOLE, WHOLE, st.sampled_from(list(SIGNS)))
def test_conditions_are_pythons_arithmetic(t, p, gpus, sign):
    found = where.holds(f"t * p + t % p {sign} gpus // p", {"t": np.array([t]), "p": p, "gpus": gpus})
    assert found.tolist() == [SIGNS[sign](t * p + t % p, gpus // p)]


@pytest.fixture(scope="module")
def space():
    with compose.composer() as (make, loader):
        axes = {
            "training.recompute": ["none", "full"], "parallel.sequence_parallel": ["true", "false"],
            "schedule.name": ["vpp", "1f1b"], "parallel.t": ["1", "8", "16"],
            "parallel.d": ["null", "2"], "parallel.v": ["null", "4"],
        }  # fmt: skip
        (found,) = compose.expand(make, loader, ["parallel.p=4"], axes)
    return found


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("t <= gpus_per_node", lambda c: c["parallel"]["t"] <= 8),
        (
            "training.recompute == 'full' and t > 1",
            lambda c: c["training"]["recompute"] == "full" and c["parallel"]["t"] > 1,
        ),
        ("not sequence_parallel", lambda c: not c["parallel"]["sequence_parallel"]),
        ("d == 2", lambda c: c["parallel"]["d"] == 2),
        ("d == gpus / (t * p)", lambda c: c["parallel"]["d"] is None),
        (
            "v == 2 and schedule == 'interleaved_1f1b'",
            lambda c: c["parallel"]["v"] is None and c["schedule"]["name"] == "vpp",
        ),
        ("v == 1", lambda c: c["parallel"]["v"] is None and c["schedule"]["name"] == "1f1b"),
        ("seq_length == 2048 and kv_heads == heads", lambda c: True),
        ("model == 'bloom_176b' and memory_gb == 80", lambda c: True),
    ],
)
def test_words_stand_for_the_combinations_own_values(space, condition, kept):
    asked = Space(base=space.base, axes=space.axes, where=(condition,))
    wanted = [bool(kept(asked.config(index))) for index in range(len(asked))]
    assert names.mask(Slice(asked, 0, len(asked))).tolist() == wanted
    for start, stop in itertools.pairwise([0, 5, 17, len(asked)]):
        assert names.mask(Slice(asked, start, stop)).tolist() == wanted[start:stop]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("shard == 1", ["shard is no name"]),
        ("parallel.shard == 1", ["parallel.shard", "null"]),
        ("cluster.gpu == 1", ["cluster.gpu ", "cluster.gpus"]),
    ],
)
def test_every_wrong_condition_is_told_at_once(space, condition, words):
    asked = Space(base=space.base, axes=space.axes, where=(condition, "nonsense"))
    with pytest.raises(Invalid) as caught:
        names.check([asked])
    assert len(caught.value.problems) == 2
    assert all(word in caught.value.problems[0] for word in words)


def test_a_list_is_no_number():
    axis = Axis(keys=("parallel.partition",), values=(("even",), ([1, 2],)))
    with pytest.raises(Invalid, match="list"):
        names.mask(
            Slice(
                Space(base={"parallel": {"partition": "even"}}, axes=(axis,), where=("parallel.partition == 'even'",)),
                0,
                2,
            )
        )
