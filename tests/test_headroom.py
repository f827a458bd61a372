"""Head-room: one key, asked by every task, and told in the same words for the same layout."""

from __future__ import annotations

from typing import Any

import pytest
from points import composed

from pipesim import headroom
from pipesim.checks import Invalid
from pipesim.plan.explain.sensitivity import Change, Neighbour, fastest
from pipesim.plan.partition import within
from pipesim.report.formats import with_runs
from pipesim.report.memory_words import memory_sure
from pipesim.report.say import english
from pipesim.report.sweep.answer import mistyped


def row(held: float, spread: float = 1.1, limit: float = 100e9) -> dict[str, Any]:
    return {
        "fits": held <= limit, "memory_bytes": held, "memory_limit_bytes": limit, "memory_lo_bytes": held / spread,
        "memory_hi_bytes": held * spread,
    }  # fmt: skip


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), float("inf")])
def test_what_is_no_share_of_memory_names_its_key_value_and_the_nearest(share: float) -> None:
    with pytest.raises(Invalid, match=f"headroom={share} must be a share of memory .* Nearest: 0"):
        headroom.of({"headroom": share})


def test_a_layout_leaves_its_headroom_up_to_the_limit_itself() -> None:
    assert headroom.left(row(90e9), 0.1)
    assert not headroom.left(row(90.1e9), 0.1)
    assert headroom.left(row(100e9), 0.0)
    assert not headroom.left(row(101e9), 0.0)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (80e9, "stays below 88.0 GB in more than nine of ten such runs: it fits."),
        (
            95e9,
            "may be 104.5 GB where 100.0 GB are there: try it before you count on it. It leaves 5.0 % of the memory free",
        ),
        (105e9, "may be 95.5 GB where 100.0 GB are there: it probably does not fit."),
        (120e9, "above 109.1 GB in more than nine of ten such runs: it does not fit."),
    ],
)
def test_whether_it_fits_is_told_by_the_interval(held: float, told: str) -> None:
    assert told in memory_sure(row(held), 0.1, english)


def test_idealised_costs_have_no_interval_and_no_sentence() -> None:
    assert memory_sure(row(80e9) | {"memory_hi_bytes": None}, 0.1, english) == ""


def test_long_lists_read_as_runs_and_short_ones_as_they_are() -> None:
    assert with_runs("a=[3,2,3,3,3,3,4] b=[1,2]") == "a=[3, 2, 3×4, 4] b=[1,2]"


def test_a_value_that_is_wrong_in_itself_is_told_once_with_its_points() -> None:
    wrong = "parallel.zero=9 must be 0, 1, 2 or 3."
    reasons = [wrong, f"parallel.t=3 x parallel.p=5 does not divide cluster.gpus=8. {wrong}"]
    (told,) = mistyped([{"status": "invalid", "reason": reason} for reason in reasons], english)
    assert told == f"Wrong in itself, and points with it: {wrong} (2)"
    assert mistyped([{"status": "invalid", "reason": "parallel.t=3 x parallel.p=5 does not divide 8."}], english) == ()


def test_what_is_divided_within_the_headroom_sees_smaller_gpus_in_every_part() -> None:
    whole = composed("cluster=mixed_a100_h100", "parallel=megatron", "parallel.p=4")
    smaller = within(whole, 0.25)
    assert smaller.cluster.memory_bytes == 0.75 * whole.cluster.memory_bytes
    assert [part.cluster.memory_bytes for part in smaller.cluster.parts] == [
        0.75 * part.cluster.memory_bytes for part in whole.cluster.parts
    ]
    assert within(whole, 0.0) == whole


def test_nothing_is_advised_that_leaves_too_little_memory() -> None:
    tight, roomy = (
        Neighbour(Change(f"parallel.t={t}", {"parallel.t": t}), row(90e9), per_token, "", leaves)
        for t, per_token, leaves in ((4, -0.2, False), (8, -0.1, True))
    )
    assert fastest([tight, roomy]) == roomy
    assert fastest([tight]) is None
