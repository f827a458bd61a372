"""Bands of rows with inferred fields: what is scanned, what is legal, and that the band holds what it was made of."""

from __future__ import annotations

import numpy as np
import pytest
from measured_rows import catalog, measured

from pipesim.calibrate import bands, predictions
from pipesim.calibrate.validate import Validation, validate


def banded(**cells: str) -> tuple[Validation, list[bands.Band]]:
    found = validate([("own", [measured(**cells)])])
    return found, bands.bands(found, catalog())


@pytest.mark.parametrize(
    ("cells", "fields"),
    [
        ({"complete": "C:recompute"}, ("recompute",)),
        ({"complete": "missing:recompute"}, ("recompute",)),
        ({"complete": "C:dp,global_batch,micro_batch,pp,recompute,tp"}, ("tp", "pp", "micro_batch", "recompute")),
        ({"complete": "C:micro_batch", "year": "2023", "inferred": "sp=false;vpp=2"}, ("vpp", "micro_batch", "sp")),
        ({"complete": "C:micro_batch", "year": "2021", "inferred": "sp=false"}, ("micro_batch",)),
        ({"complete": "C:heads,layers,seq_len"}, ()),
        ({"complete": "B:recompute"}, ()),
        ({"complete": "A"}, ()),
    ],
)
def test_fields_that_the_grade_names_are_scanned_if_they_are_layouts(
    cells: dict[str, str], fields: tuple[str, ...]
) -> None:
    assert bands.fields(measured(**cells)) == fields


def test_a_row_that_states_everything_has_no_band() -> None:
    assert banded(complete="A")[1] == []


def test_a_band_reaches_from_the_fastest_legal_value_to_the_slowest() -> None:
    found, (band,) = banded(complete="C:recompute", recompute="none", year="2023")
    by_hand = [validate([("own", [measured(recompute=again)])]) for again in ("none", "selective", "full")]
    times = [float(each.predicted.step_time_s[0]) for each in by_hand]
    assert (band.low_s, band.high_s, band.layouts) == (min(times), max(times), 3)
    assert band.low_s <= found.predicted.step_time_s[0] <= band.high_s
    assert band.nearest_s in times


def test_nothing_is_scanned_that_a_year_did_not_have() -> None:
    assert banded(complete="C:recompute", recompute="none", year="2021")[1][0].layouts == 2
    assert banded(complete="C:recompute", recompute="none", year="2023")[1][0].layouts == 3


def test_micro_batches_that_do_not_divide_the_batch_are_no_layouts() -> None:
    # 64 sequences on 4 replicas: micro-batches of 1, 2, 4, 8 and 16; 24 on 4 are 1 and 2
    assert banded(complete="C:micro_batch", micro_batch="1")[1][0].layouts == 5
    assert banded(complete="C:micro_batch", micro_batch="1", global_batch="24")[1][0].layouts == 2


def test_layouts_that_do_not_fit_are_left_out() -> None:
    big = {"layers": "96", "hidden": "12288", "heads": "96", "ffn": "49152", "tp": "8", "pp": "8", "n_gpus": "128"}
    found, (band,) = banded(complete="C:recompute", recompute="full", micro_batch="8", year="2023", **big)
    assert validate([("own", [measured(**big, micro_batch="8", recompute="none")])]).predicted.most_bytes[0] > 80e9
    assert band.layouts < 3
    assert band.low_s == found.predicted.step_time_s[0]


def test_inside_is_what_lies_between_the_ends() -> None:
    _, (band,) = banded(complete="C:recompute")
    for measured_s, inside, nearly in (
        (band.low_s * 1.001, True, True), (band.low_s / 1.03, False, True), (band.high_s * 1.03, False, True),
        (band.high_s * 3, False, False), (band.low_s / 3, False, False),
    ):  # fmt: skip
        _, (other,) = banded(complete="C:recompute", measured_step_time_s=str(measured_s))
        assert (other.inside, other.inside_intervals) == (inside, nearly)
        assert other.low_s == band.low_s
    at_the_end = banded(complete="C:recompute", measured_step_time_s=str(band.high_s * 2))[1][0]
    assert at_the_end.nearest_s == band.high_s


def test_a_band_goes_into_the_row_of_its_prediction() -> None:
    found = validate([("own", [measured(), measured(id="b", complete="C:recompute")])])
    plain, scanned = predictions.rows(found, bands.bands(found, catalog()))
    assert "band_lo_s" not in plain
    assert scanned["scanned"] == "recompute"
    assert scanned["band_lo_s"] <= scanned["step_time_s"] <= scanned["band_hi_s"]
    predictions.parquet([plain, scanned])


def test_rows_without_a_time_or_a_prediction_have_no_band() -> None:
    rows = [
        measured(complete="C:recompute", **cells)
        for cells in ({"measured_step_time_s": ""}, {"gpu": "abacus"}, {"outcome": "OOM"})
    ]
    found = validate([("own", rows)])
    assert bands.bands(found, catalog()) == []
    assert np.isnan(found.measured_s[0])
