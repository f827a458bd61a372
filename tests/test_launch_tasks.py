"""The tasks ``launch`` and ``read``: files of a study, a headline at once, and mistakes in a sentence."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from points import plain as asked
from test_errors import main_of

from pipesim import compose, config, errors, legality
from pipesim.checks import Invalid
from pipesim.report import html, markdown
from pipesim.report.document import Listing, Observations, Table
from pipesim.tasks.launch.task import launch
from pipesim.tasks.read.task import read

B13 = """
torchrun --nproc_per_node 8 --nnodes=1 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 \\
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 2 --global-batch-size 16 \\
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --bf16 \\
  --use-rotary-position-embeddings --use-flash-attn --use-distributed-optimizer --tokenizer-type Llama2Tokenizer \\
  --attention-dropout 0 --hidden-dropout 0 --frobnicate
"""
"""Flags that people paste and want gigabytes for."""

NO_FLASH = """
--num-layers 36 --hidden-size 1280 --num-attention-heads 20 --seq-length 1024 --max-position-embeddings 1024 --fp16
--micro-batch-size 4 --global-batch-size 4 --tokenizer-type GPT2BPETokenizer --nnodes 1 --nproc-per-node 1
"""


LLAMA = (
    '{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 128256, '
    '"num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 131072}'
)
WITHOUT_VOCABULARY = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64"


@pytest.fixture
def read_file(tmp_path: Path) -> Any:
    def ask(text: str, *overrides: str, name: str = "train.sh") -> Any:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        asking = asked("experiment=read", *overrides)
        asking["task"]["read"]["path"] = str(path)
        return read(asking)

    return ask


def blocks(done: Any, kind: type[Any]) -> list[Any]:
    return [block for section in done.document.sections for block in section.blocks if isinstance(block, kind)]


@pytest.mark.slow
def test_pasted_flags_are_priced_item_by_item_and_written_as_configs(read_file: Any) -> None:
    done = read_file(B13, "cluster=dgx_a100")
    assert set(done.files) == {f"conf/{group}/train.yaml" for group in ("model", "parallel", "training")}
    assert yaml.safe_load(done.files["conf/model/train.yaml"])["ffn"] == 11008
    assert yaml.safe_load(done.files["conf/parallel/train.yaml"])["d"] == 8
    text = markdown.to_markdown(done.document)
    assert "6.74B parameters" in text
    assert "rank 0 needs" in text or "holds" in text
    assert "model=train parallel=train training=train schedule=1f1b cluster=dgx" in text.replace("\\", "")
    assert "cluster.gpus=8 stack=megatron" in text.replace("\\", "")
    claims = {each.title: each.claims for each in blocks(done, Observations)}
    assert claims["Not understood"] == ("--frobnicate",)
    html.to_html(done.document)


@pytest.mark.slow
def test_without_flash_attention_the_scores_and_the_logits_in_fp32_are_held(read_file: Any) -> None:
    """a s s b of the scores, 5 bytes each, of 36 layers (Korthikanti et al. 2022, equation 1); 50,304 logits of 4 bytes."""
    held = {}
    for kernel in ("flash", "unfused"):
        done = read_file(
            NO_FLASH + f"--attention-backend {kernel}",
            "cluster=dgx2_v100" if kernel == "unfused" else "cluster=dgx_a100",
        )
        (table,) = (each for each in blocks(done, Table) if "holds" in each.title)
        held[kernel] = {row[0]: row[1] for row in table.rows}
    scores = 36 * 5 * 20 * 1024**2 * 4
    assert held["unfused"]["activations"] - held["flash"]["activations"] > 0.8 * scores
    assert held["unfused"]["logits and loss"] >= 1024 * 4 * 50304 * 4


@pytest.mark.slow
def test_what_was_read_is_asked_for_again_by_the_command_that_is_told(read_file: Any) -> None:
    done = read_file(B13, "cluster=dgx_a100")
    conf = asked("cluster=dgx_a100", "cluster.gpus=8", "stack=megatron_lm")
    for group in ("model", "parallel", "training"):
        conf[group] = conf[group] | yaml.safe_load(done.files[f"conf/{group}/train.yaml"])
    found = legality.resolve(config.build(conf))
    assert (found.layout.d, found.layout.zero, found.training.micro_batch, found.model.vocab) == (8, 1, 2, 32000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "name", "overrides"),
    [
        (LLAMA, "config.json", ("cluster=dgx_h100", "training.seq_length=8192", "cluster.gpus=64", "parallel.p=4")),
        (
            LLAMA,
            "config.json",
            (
                "parallel=fsdp",
                "stack=torchtitan",
                "stack.slack=0.3",
                "cluster.peak_tflops.bf16=300",
                "training.global_batch=768",
            ),
        ),
        (B13, "train.sh", ("cluster=dgx_a100", "stack.dp_overlap=0.3")),
    ],
)
def test_the_command_that_is_told_prints_the_same_headline(
    text: str, name: str, overrides: tuple[str, ...], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(compose.JOBS_VARIABLE, "unset")

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        assert not errors.guarded(main_of("run"))
        return str(capsys.readouterr().out)

    first = run("experiment=read", f"task.read.path={name}", "study.dir=study", *overrides)
    (command,) = re.findall(r"python experiments/run.py (--config-dir STUDY/conf .*)", first)
    again = run(*shlex.split(command.replace("STUDY", "study")), "study.dir=again")
    headline = " ".join(first.split()).split("constants of stack=")[1].split(": ", 1)[1].split(" MFU")[0]
    assert "One step takes" in headline or "A step would take" in headline
    assert headline in " ".join(again.split())
    assert f"python experiments/run.py {command.replace('STUDY', 'study')}" in first, "the next step that is told"


@pytest.mark.slow
def test_what_a_model_does_not_say_is_todays_and_told(read_file: Any) -> None:
    text = markdown.to_markdown(read_file(LLAMA, "cluster=dgx_h100", name="config.json").document).replace("\\", "")
    assert "cannot be priced" not in text
    said = "parallel=megatron, training=megatron, schedule=1f1b, cluster=dgx_h100, stack=megatron_lm: the file says nothing"
    assert said in text
    assert "Sequences of 131,072 tokens, the file's max_position_embeddings" in text
    assert "training.seq_length=8192." in text
    short = markdown.to_markdown(
        read_file(LLAMA, "cluster=dgx_h100", "training.seq_length=4096", name="config.json").document
    )
    assert "Sequences of" not in short.replace("\\", "")


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_ways_out_and_dropouts_masks(read_file: Any) -> None:
    text = B13.replace("--attention-dropout 0 --hidden-dropout 0", "")
    text = text.replace("--micro-batch-size 2", "--micro-batch-size 8").replace(
        "--global-batch-size 16", "--global-batch-size 64"
    )
    done = read_file(text, "cluster=dgx_a100_40g")
    said = markdown.to_markdown(done.document).replace("\\", "")
    assert "The cheapest way to make it fit on the same machines is" in said
    assert "What would make it fit, each change alone" in said
    assert "with training.dropout=false rank 0 needs" in said
    (answer,) = (section for section in done.document.sections if section.title == "Answer")
    needs = [
        float(each)
        for each in re.findall(r"needs ([\d.]+) GB", " ".join(b for b in answer.blocks if isinstance(b, str)))
    ]
    assert needs[0] > needs[1], "masks of a byte an element weigh something"
    without = read_file(text + " --attention-dropout 0 --hidden-dropout 0", "cluster=dgx_a100_40g")
    assert f"needs {needs[1]}" in markdown.to_markdown(without.document)


@pytest.mark.slow
def test_a_model_alone_keeps_the_layout_that_was_asked(read_file: Any) -> None:
    text = (
        '{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 128256, '
        '"num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 8192}'
    )
    done = read_file(text, "parallel=one_gpu", "training=megatron", "cluster=dgx_h100", name="llama3_8b.json")
    assert set(done.files) == {"conf/model/llama3_8b_read.yaml"}
    assert "8.03B parameters" in done.document.title


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        (WITHOUT_VOCABULARY, (), "model.vocab is not told. Nearest: add --vocab-size N"),
        ("hello", (), "its format cannot be told. Nearest: task.read.format=megatron_lm"),
        (B13, ("task.read.format=megatron",), "task.read.format=megatron is unknown. Nearest: megatron_lm"),
        (B13, ("task.read.name=llama3_8b",), "task.read.name=llama3_8b is a file of conf/model already"),
        (B13, ("task.read.name='../x'",), "becomes a file's"),
        ('{"model_type": "t5"}', (), "is no shape of ours"),
        ("[training]\nx = [", ("task.read.format=torchtitan",), "cannot be read as torchtitan"),
        ("--num-layers '8", (), "it is no shell script"),
    ],
)  # fmt: skip
def test_mistakes_get_a_sentence(read_file: Any, text: str, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(Invalid) as error:
        read_file(text, *overrides)
    assert said in str(error.value)


def test_a_file_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match=r"task\.read\.path=null"):
        read(asked("experiment=read"))
    with pytest.raises(Invalid, match="cannot be read"):
        read(asked("experiment=read", "task.read.path=/dev/null/x"))


MEGATRON = ("experiment=launch", "model=llama3_8b", "parallel=megatron", "training=megatron", "stack=megatron_lm")


@pytest.mark.slow
def test_megatrons_script_overlaps_as_its_stack_does_and_names_what_is_left_to_the_reader() -> None:
    def script(*words: str) -> str:
        return str(launch(asked(*MEGATRON, "cluster=dgx_h100", *words)).files["launch/megatron_lm.sh"])

    text = script()
    for said in (
        "    --overlap-grad-reduce\n    --overlap-param-gather\n",
        "# Note: no key says the rotary base",
        "500000",
        "--train-iters, --save",
        "NODE_RANK=k MASTER_ADDR=FIRST_NODE",
        "# srun --nodes 32",
        "--vocab-size 128255 is one",
    ):
        assert said in text  # fmt: skip
    assert "--overlap-grad-reduce\n" in script("parallel.zero=0")
    assert "--overlap-param-gather" not in script("parallel.zero=0")
    for words in (("stack.dp_overlap=0",), ("cluster.gpus=16",)):
        assert "--overlap" not in script(*words)
    assert "srun" not in script("cluster.gpus=8", "parallel.p=1")
    page = markdown.to_markdown(launch(asked(*MEGATRON, "cluster=dgx_h100")).document)
    assert "One file in launch/ of this study starts" in page


def test_a_layout_is_written_and_shown_under_another_framework() -> None:
    words = (
        "experiment=launch", "model=llama3_8b", "cluster=dgx_h100", "parallel=fsdp", "training=megatron",
        "training.recompute=full", "task.launch.to=torchtitan",
    )  # fmt: skip
    done = launch(asked(*words))
    assert set(done.files) == {"launch/torchtitan.toml"}
    (listing,) = blocks(done, Listing)
    assert listing.text == done.files["launch/torchtitan.toml"]
    assert listing.text in markdown.to_markdown(done.document)
    assert "[parallelism]" in html.to_html(done.document)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("task.launch.to=megatron",), "task.launch.to=megatron has no arguments that are written. Nearest: megatron_lm"),
        (("task.launch.to=megatron_lm",), "Megatron-LM: model.positions=alibi is not there. Nearest: model.positions=learned"),
        (("task.launch.to=torchtitan",), "parallel.t=4 comes with sequence parallelism"),
        (("stack=composer_fsdp", "parallel=fsdp"), "task.launch.to=composer has no arguments"),
        (("schedule=zbv",), "schedule=zbv is not there. Nearest: schedule=1f1b"),
    ],
)  # fmt: skip
def test_what_a_framework_cannot_run_is_refused_with_the_nearest(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(Invalid) as error:
        launch(asked("experiment=launch", *overrides))
    assert said in str(error.value)
