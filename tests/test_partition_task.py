"""experiment=partition: what it tells and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from points import plain

from pipesim import headroom, study
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Space
from pipesim.tasks.partition.task import partition


def asked(*overrides: str) -> dict[str, Any]:
    return plain("experiment=partition", *overrides)


def problems(*overrides: str) -> str:
    with pytest.raises(Invalid) as raised:
        study.run([Space(base=asked(*overrides))], ["experiment=partition"], False)
    return " ".join(raised.value.problems)


@pytest.mark.slow
def test_the_task_tells_the_best_beside_the_balanced_and_how_to_ask_for_it(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    study.run(
        [Space(base=asked("task.partition.recompute=true", f"study.dir={folder}"))], ["experiment=partition"], False
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "less than balanced" in said
    assert "No partition of this layout is faster than" in said
    assert "parallel.partition=[" in said
    assert "training.recompute_layers=[" in said
    assert '--pipeline-model-parallel-layout "E' in said
    assert "Seconds and bytes of every rank" in said
    assert {"report.html", "report.md", "results.parquet"} <= {path.name for path in folder.iterdir()}


def test_what_runs_again_is_chosen_within_the_headroom_and_without_one_fills_the_memory() -> None:
    full, roomy = (partition(asked(f"headroom={share}", "task.partition.recompute=true")).rows[0] for share in (0, 0.1))
    assert headroom.left(roomy, 0.1)
    assert not headroom.left(full, 0.1)
    assert full["step_time_s"] < roomy["step_time_s"]


def test_the_task_refuses_what_it_cannot_divide() -> None:
    assert "parallel.p=1 is one stage" in problems("parallel.p=1", "parallel.d=8")
    assert "costs.kind=lecture cuts the model into equal blocks" in problems("costs=lecture")
    assert "training.recompute=none runs none" in problems("task.partition.recompute=true", "training.recompute=none")
