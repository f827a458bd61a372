"""The demo real_pipeline: a cut model that really runs, beside the uncut one; claims that hold only while the run says so."""

import copy
import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipesim import compose, config, demos
from pipesim.checks import Invalid
from pipesim.demos import real_runs
from pipesim.demos.real_pipeline import row, section
from pipesim.demos.real_runs import NotInstalled, RealRun, run_real
from pipesim.report.document import Observations, Table
from pipesim.report.markdown import to_markdown
from pipesim.results import schema

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
CJK = re.compile(r"[\u4e00-\u9fff]")

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in real_runs.NEEDED),
    reason="the extra execute is not installed",
)

RUN = RealRun(
    schedule="1f1b",
    micro_batches=4,
    micro_batch=8,
    length=96,
    width=64,
    units=(("embedding", "blocks.0"), ("blocks.1", "head")),
    parameters=(60_992, 52_928),
    base_loss=0.34,
    unigram_entropy=3.184,
    cut_loss=0.35,
    uncut_loss=0.35,
    cut_gradient=0.05,
    uncut_gradient=0.05,
    largest_difference=2e-8,
    forward_bytes=786_432,
    backward_bytes=786_432,
    peak_inflight=(2, 1),
    simulated_inflight=(2, 1),
)


@pytest.fixture(scope="module")
def composed():
    with compose.composer() as (composer, _):
        plain = {(name, lang): config.plain(composer([f"demo={name}", f"lang={lang}"]))
                 for name in ("real_pipeline", "all") for lang in ("en", "zh")}  # fmt: skip
    return lambda name="real_pipeline", lang="en": copy.deepcopy(plain[name, lang])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cached(cache, monkeypatch):
    """The base model is trained once for this file, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "pipesim"


@pytest.fixture
def no_torch(monkeypatch):
    for name in ("pipesim.toy.base_model", "pipesim.execute.job", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pipesim.toy.base_model")
    monkeypatch.delitem(sys.modules, "pipesim.execute.job")


def claims_of(shown):
    return [claim for block in shown.blocks if isinstance(block, Observations) for claim in block.claims]


def said(run, asked, words):
    return any(words in claim for claim in claims_of(section(run, asked)))


# what is said of a run


def test_the_demo_says_what_the_lecture_shows(composed):
    same, cut, held, more, less = claims_of(section(RUN, composed()))
    assert "No gradient differs by more than 2.00e-8" in same
    assert "mathematically the same algorithm" in same
    assert "4 × 8 × 96 × 64 × 4 bytes = 786,432 bytes forward, just as many back" in cut
    assert "no all-reduce" in cut
    assert "at most 2, 1 micro-batches at once" in held
    assert "113,920 × 4 bytes = 455,680 bytes. In this toy the 786,432 bytes of activations are more" in more
    assert "the 256 sequences of 2,048 tokens that one replica of bloom_176b takes" in less
    assert "30.1 GB at a cut, 4.3 % of the 705.0 GB of its gradients" in less


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"largest_difference": 1e-3}, "the same algorithm"),
        ({"cut_loss": 0.36}, "the same algorithm"),
        ({"forward_bytes": 786_436, "backward_bytes": 786_436}, "Only the activation"),
        ({"backward_bytes": 0}, "Only the activation"),
        ({"peak_inflight": (4, 4)}, "exactly what the simulation"),
        ({"parameters": (60_992, 852_928)}, "In this toy"),
    ],
)
def test_a_claim_vanishes_with_what_it_rests_on(composed, change, words):
    assert said(RUN, composed(), words)
    assert not said(dataclasses.replace(RUN, **change), composed(), words)


@pytest.mark.parametrize(("group", "key", "value"), [("model", "layers", 2), ("training", "global_batch", 2047)])
def test_a_large_model_is_spoken_of_only_where_it_is_one_that_can_be_trained(composed, group, key, value):
    asked = composed()
    asked[group][key] = value
    asked["parallel"]["p"] = 1
    assert not said(RUN, asked, "far less")


def test_more_cuts_are_counted_in_the_product(composed):
    three = dataclasses.replace(
        RUN,
        units=(("embedding",), ("blocks.0",), ("blocks.1", "head")),
        parameters=(11_008, 49_984, 52_928),
        forward_bytes=2 * 786_432,
        backward_bytes=2 * 786_432,
        peak_inflight=(3, 2, 1),
        simulated_inflight=(3, 2, 1),
    )
    assert said(three, composed(), "2 × 4 × 8 × 96 × 64 × 4 bytes = 1,572,864 bytes forward")


def test_both_languages_say_the_same_figures(composed):
    english, chinese = (claims_of(section(RUN, composed(lang=lang))) for lang in ("en", "zh"))
    assert len(english) == len(chinese) == 5
    for one, other in zip(english, chinese, strict=True):
        assert set(FIGURE.findall(one)) == set(FIGURE.findall(other))
    tables = [
        [block for block in section(RUN, composed(lang=lang)).blocks if isinstance(block, Table)]
        for lang in ("en", "zh")
    ]
    assert [row[2:] for table in tables[0] for row in table.rows] == [
        row[2:] for table in tables[1] for row in table.rows
    ]


def test_every_text_is_in_its_language_and_punctuated_as_it(composed):
    for lang, is_right in (("zh", CJK.search), ("en", lambda text: not CJK.search(text))):
        shown = section(RUN, composed(lang=lang))
        prose = [shown.title, *(block for block in shown.blocks if isinstance(block, str)), *claims_of(shown)]
        assert all(is_right(text) for text in prose)
    document = demos.Document(title="", sections=(section(RUN, composed(lang="zh")),), language="zh")
    assert not re.search(r"[\u4e00-\u9fff][,:;?()]|[,:;?()][\u4e00-\u9fff]", to_markdown(document))


def test_stages_are_named_as_people_call_them(composed):
    stages = next(block for block in section(RUN, composed()).blocks if isinstance(block, Table))
    assert [cells[1] for cells in stages.rows] == ["embeddings + block 1", "block 2 + final LayerNorm and output layer"]


def test_the_row_fits_the_schema():
    (stored,) = schema.table([row(RUN)]).to_pylist()
    assert (stored["case"], stored["p"], stored["num_microbatches"], stored["micro_batch"]) == (
        "real_pipeline",
        2,
        4,
        8,
    )
    assert (stored["model_params"], stored["global_batch"], stored["peak_inflight"]) == (113_920, 32, [2, 1])


# what cannot run


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"micro_batch": 0}, r"demo\.real_pipeline: micro_batch=0 must be at least 1\. Nearest: 1\."),
        ({"length": 0}, r"demo\.real_pipeline: length=0 must be at least 1\. Nearest: 1\."),
        ({"mode": "gpus"}, r"demo\.real_pipeline: mode='gpus' must be one of threads, processes\. Nearest: threads\."),
        ({"micro_batches": 0}, r"demo\.real_pipeline: num_microbatches=0 must be a whole number"),
        ({"schedule": "1f2b"}, r"demo\.real_pipeline: schedule\.name='1f2b' is unknown"),
        ({"schedule": "zbv"}, r"demo\.real_pipeline: schedule=zbv must give each rank one stage .* Nearest: 1f1b\."),
        ({"schedule": "dualpipe"}, r"demo\.real_pipeline: schedule=dualpipe must give each rank one stage"),
        ({"schedule": "seq1f1b"}, r"demo\.real_pipeline: schedule=seq1f1b must give each rank one stage and whole"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(composed, change, problem):
    with pytest.raises(Invalid, match=problem):
        run_real(composed()["demo"]["real_pipeline"] | change)


def test_every_broken_rule_is_named():
    conf = {"schedule": "x", "p": 2, "micro_batches": 4, "micro_batch": 0, "length": 0, "seed": 0, "mode": ""}
    with pytest.raises(Invalid) as told:
        run_real(conf)
    assert len(told.value.problems) == 4


def test_without_torch_the_demo_says_what_to_install(composed, no_torch):
    with pytest.raises(NotInstalled, match=r"needs torch, which is not installed.*pip install 'pipesim\[execute\]'"):
        demos.run(composed())


def test_without_torch_the_other_demos_are_shown_all_the_same(composed, no_torch):
    for lang, words in (("en", "Not run."), ("zh", "未运行")):
        document, rows = demos.run(composed("all", lang))
        told = to_markdown(document)
        assert words in told
        assert "pip install 'pipesim[execute]'" in told.replace("\\", "")
        (left_out,) = (each for each in rows if each["case"] == "real_pipeline")
        assert (left_out["status"], "needs torch" in left_out["reason"]) == ("invalid", True)
        assert len({each["case"] for each in rows}) == len(document.sections) == 5
        assert not re.search(r"[\u4e00-\u9fff][,:;?()]|[,:;?()][\u4e00-\u9fff]", told)


@pytest.mark.slow
def test_without_torch_the_command_ends_with_one_message_and_exit_code_2(tmp_path):
    stub = 'raise ModuleNotFoundError("No module named \'torch\'", name="torch")'
    (tmp_path / "torch.py").write_text(stub)
    done = subprocess.run(
        [sys.executable, str(ROOT / "experiments" / "run.py"), "demo=real_pipeline", f"study.dir={tmp_path / 'study'}"],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: demo.real_pipeline really runs a model and needs torch, which is not installed."
    )
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "study").exists()


def test_another_missing_module_is_a_fault_of_ours(composed, monkeypatch):
    def absent(*_):
        raise ModuleNotFoundError("No module named 'pipesim.nowhere'", name="pipesim.nowhere")

    monkeypatch.setattr(real_runs, "_run", absent)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        demos.run(composed())


# the run itself


@pytest.fixture
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@needs_torch
@pytest.mark.slow
def test_the_cut_model_has_the_uncut_models_gradients_and_sends_what_the_formula_says(composed, cached, one_thread):
    run = run_real(composed()["demo"]["real_pipeline"])
    assert 0 < run.largest_difference < 1e-6
    assert run.cut_loss == pytest.approx(run.uncut_loss, abs=1e-6)
    assert run.forward_bytes == run.backward_bytes == run.activation_bytes == 4 * 8 * 96 * 64 * 4 == 786_432
    assert run.parameters == RUN.parameters
    assert run.units == RUN.units
    assert run.all_reduce_bytes == 455_680
    assert run.peak_inflight == run.simulated_inflight == (2, 1)
    assert run.base_loss < run.unigram_entropy - 2
    assert run == run_real(composed()["demo"]["real_pipeline"])


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "gpipe"},
        {"schedule": "zb_h1"},
        {"p": 4},
        {"p": 3, "micro_batches": 3, "micro_batch": 2, "length": 20},
        {"p": 1},
    ],
)
def test_other_schedules_and_sizes_have_the_same_gradients(composed, cached, one_thread, change):
    asked = composed()
    asked["demo"]["real_pipeline"] |= change
    run = run_real(asked["demo"]["real_pipeline"])
    assert run.forward_bytes == run.backward_bytes == run.activation_bytes
    assert run.peak_inflight == run.simulated_inflight
    assert said(run, asked, "the same algorithm")
    assert said(run, asked, "Only the activation") == (run.p > 1)


@needs_torch
@pytest.mark.alone
@pytest.mark.slow
def test_real_processes_give_what_threads_give(composed, cached, one_thread):
    conf = composed()["demo"]["real_pipeline"]
    threads, processes = (run_real(conf | {"mode": mode}) for mode in ("threads", "processes"))
    assert processes == threads


@needs_torch
@pytest.mark.slow
def test_the_base_model_has_learned_the_text(cached, one_thread):
    from pipesim.toy.base_model import load_or_train_base_model

    base = load_or_train_base_model()
    assert base.path.parent == cached
    assert base.loss < 0.5
    assert sum(parameter.numel() for parameter in base.model.parameters()) == 113_920


@needs_torch
@pytest.mark.slow
def test_the_base_model_stays_as_it_was(composed, cached, one_thread):
    conf = composed()["demo"]["real_pipeline"]
    run_real(conf)
    before = {path.name: path.read_bytes() for path in cached.iterdir()}
    run_real(conf)
    assert {path.name: path.read_bytes() for path in cached.iterdir()} == before
    assert len(before) == 1


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"length": 129}, r"demo\.real_pipeline: length=129 exceeds the model's context of 128\. Nearest: 128\."),
        ({"p": 5}, r"demo\.real_pipeline: 5 stages need at least one unit each"),
    ],
)
def test_sizes_that_the_model_does_not_have_are_refused(composed, cached, change, problem):
    with pytest.raises(Invalid, match=problem):
        run_real(composed()["demo"]["real_pipeline"] | change)


@needs_torch
@pytest.mark.slow
def test_all_shows_it_between_memory_and_bloom(composed, cached, one_thread):
    document, rows = demos.run(composed("all"))
    assert document.sections[3].title.startswith("A real pipeline")
    assert len(document.sections) == 5
    assert {each["status"] for each in rows if each["case"] == "real_pipeline"} == {"ok"}
