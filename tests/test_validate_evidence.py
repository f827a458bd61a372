"""What reports say of the measured runs behind the constants is what the validation finds now."""

from __future__ import annotations

import json

import pytest
from measured_rows import packaged

from pipesim import config
from pipesim.calibrate import evidence
from pipesim.report import provenance
from pipesim.report.say import english

NEAR = 0.005
"""Of a mean error: formulas may move a little before ``benchmarks/evidence.py`` must run again."""


@pytest.mark.slow
def test_the_packaged_evidence_is_that_of_this_version() -> None:
    found = {(each["stack"], each["chip"], each["role"]): each for each in evidence.lines(packaged())}
    known = {(each["stack"], each["chip"], each["role"]): each for each in evidence.packaged()}
    assert found.keys() == known.keys()
    for key, each in found.items():
        for name, value in each.items():
            assert known[key][name] == (pytest.approx(value, abs=NEAR) if name.endswith("error") else value), (
                key,
                name,
            )


def test_it_is_kept_a_line_for_every_line() -> None:
    assert json.loads(evidence.dump(evidence.packaged())) == evidence.packaged()
    assert all(each["step_times"] <= each["runs"] for each in evidence.packaged())


def test_a_report_says_how_many_runs_of_ones_own_stand_behind_a_stack() -> None:
    stack = {"name": "mine", "based_on": "megatron_lm", "own_runs": {"h100": 3}}
    manifest = {"config": {"stack": stack}, "first_point": {"stack": stack}, "evidence": evidence.packaged()}
    (section,) = provenance.behind(manifest, [{"stack": "mine", "costs": "full"}], english)
    assert "fitted to 3 runs of one's own on h100" in str(section.blocks[0])
    assert len(section.blocks) == 2


@pytest.mark.parametrize(("name", "said"), [("torchtitan", True), ("bigscience", True), ("megatron_lm", False)])
def test_a_stack_that_no_run_was_fitted_for_says_whose_intervals_it_has(name: str, said: bool) -> None:
    stack = config.stack_files()[name]
    manifest = {"config": {"stack": stack}, "first_point": {"stack": stack}, "evidence": evidence.packaged()}
    (section,) = provenance.behind(manifest, [{"stack": name, "costs": "full"}], english)
    told = f"No run was fitted for stack {name} itself: intervals count it as measured, for it is based on {stack['based_on']}"
    assert (told in str(section.blocks)) == said
