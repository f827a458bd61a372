"""The task ``execute``: from the keys of ``conf/task/execute.yaml`` to a study's report and files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import OmegaConf

from pipesim.checks import Invalid
from pipesim.config import CONF_DIR
from pipesim.report.document import Observations
from pipesim.results import schema
from pipesim.task_config import ExecuteConf
from pipesim.tasks import Done
from pipesim.tasks.execute.task import execute

SMALL = {"mode": "threads", "repeats": 2, "warm_up": 0, "width": 16, "heads": 2, "length": 16, "m": 4, "micro_batch": 2}


def conf(**changes: Any) -> dict[str, Any]:
    """What the YAML says, checked by its schema, with ``changes``."""
    told = OmegaConf.merge(OmegaConf.structured(ExecuteConf), OmegaConf.load(CONF_DIR / "task" / "execute.yaml"))
    return OmegaConf.to_container(OmegaConf.merge(told, changes))  # type: ignore[return-value]


def run(**changes: Any) -> Done:
    torch.set_num_threads(1)
    return execute({"task": {"execute": conf(**changes)}})


def claims(done: Done) -> str:
    blocks = [block for section in done.document.sections for block in section.blocks]
    return "\n".join(claim for block in blocks if isinstance(block, Observations) for claim in block.claims)


@pytest.mark.parametrize(
    "changes",
    [{}, {"schedule": "zbv", "tied": True, "dtype": "float64"}, {"schedule": "dualpipe", "d": 2},
     {"schedule": "seq1f1b", "options": {"segments": 4}}, {"schedule": "interleaved_1f1b", "v": 3}],
)  # fmt: skip
def test_a_run_holds_sends_and_computes_what_it_should(changes: dict[str, Any]) -> None:
    done = run(**SMALL, **changes)
    for words in ("exactly what is simulated", "exactly the bytes", "gradient"):
        assert words in claims(done)
    schema.table(done.rows)
    spans = pq.read_table(io.BytesIO(done.files["spans.parquet"]))  # type: ignore[arg-type]
    events = json.loads(done.files["trace.json"])["traceEvents"]
    assert sum(event.get("cat") in tuple("FBIW") for event in events) == 2 * spans.num_rows
    assert {event["pid"] for event in events} == set(range(4))
    assert done.rows[0]["p"] == 2


def test_a_schedule_of_ones_own_runs_from_its_file(tmp_path: Any) -> None:
    path = tmp_path / "own.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    done = run(**SMALL | {"schedule": "custom", "m": 2, "options": {"path": str(path)}})
    assert done.files["schedule.csv"].splitlines() == path.read_text(encoding="utf-8").splitlines()  # type: ignore[union-attr]
    assert "at most 2, 1 activations" in claims(done)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": "1f2b"}, "1f2b"),
        ({"heads": 3}, "heads=3"),
        ({"p": 9}, "9 stages"),
        ({"dtype": "float16", "zero": 2}, "float16"),
        ({"repeats": 0}, "repeats=0"),
        ({"mode": "fibres"}, "fibres"),
        ({"schedule": "dualpipe", "torch_peer": True}, "torch_peer=true: dualpipe"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as error:
        run(**changes)
    assert words in str(error.value)
    assert all(problem.startswith("task.execute: ") for problem in error.value.problems)


@pytest.mark.slow
def test_without_torch_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pipesim.checks import Invalid\n"
        "from pipesim.tasks.execute.task import execute\n"
        "try: execute({'task': {'execute': {}}})\n"
        "except Invalid as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "needs torch, which is not installed" in done.stdout
    assert "pip install 'pipesim[execute]'" in done.stdout


@pytest.mark.alone
@pytest.mark.slow
def test_pytorchs_runtime_stands_beside_ours() -> None:
    assert "PyTorch's own pipeline runtime" in claims(run(**SMALL, torch_peer=True))
