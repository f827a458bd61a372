"""Demo: the base model cut into stages that really run. Is the result the same as uncut, and what travels between them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim.demos.claims import Say, counted, observations, speaker
from pipesim.demos.real_claims import claims
from pipesim.demos.real_runs import INSTALL, INSTALL_CHECKOUT, NotInstalled, RealRun, run_real
from pipesim.demos.runs import label
from pipesim.report.document import Column, Section, Table
from pipesim.report.formats import show
from pipesim.results.schema import Row


def real_pipeline(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    """Needs torch: without it ``NotInstalled`` is raised, but among other demos the section says what to install."""
    say = speaker(config["lang"])
    try:
        run = run_real(config["demo"]["real_pipeline"])
    except NotInstalled as error:
        if sum(demo is not None for demo in config["demo"].values()) == 1:
            raise
        left_out: Row = {"status": "invalid", "reason": str(error), "case": "real_pipeline"}
        return Section(title=_title(say), blocks=(_not_run(error, say),)), [left_out]
    return section(run, config), [row(run)]


def section(run: RealRun, config: Mapping[str, Any]) -> Section:
    say = speaker(config["lang"])
    return Section(
        title=_title(say),
        blocks=(
            *_introduction(run, say),
            _stages(run, say),
            _results(run, say),
            _traffic(run, say),
            *observations(claims(run, config), say),
        ),
    )


def row(run: RealRun) -> Row:
    return {
        "status": "ok",
        "case": "real_pipeline",
        "model": "toy",
        "schedule": run.schedule,
        "t": 1,
        "p": run.p,
        "d": 1,
        "v": 1,
        "micro_batch": run.micro_batch,
        "global_batch": run.sequences,
        "seq_length": run.length,
        "num_microbatches": run.micro_batches,
        "model_params": sum(run.parameters),
        "params_per_gpu": max(run.parameters),
        "peak_inflight": list(run.peak_inflight),
        "stage_units": [len(units) for units in run.units],
    }


def _title(say: Say) -> str:
    return say(
        "A real pipeline: the same gradients, and what they cost to send", "真实的流水线：梯度相同，要传多少字节"
    )


def _not_run(error: NotInstalled, say: Say) -> str:
    return say(
        f"Not run. {error}",
        f"未运行：这个演示要真正运行一个模型，需要 {error.package}，但它没有安装。安装命令是 {INSTALL}，在代码仓库中则是 "
        f"{INSTALL_CHECKOUT}。",
    )


def _introduction(run: RealRun, say: Say) -> tuple[str, str]:
    batch = f"{run.sequences} × {run.length}"
    loss, entropy = show(run.base_loss, "number"), show(run.unigram_entropy, "number")
    return (
        say(
            f"Does a model that is cut into {counted(run.p, 'stage')} learn the same as one that is not? Both start from "
            f"copies of one base model, a small GPT, and take the same batch of {batch} characters: the uncut one at "
            f"once, the pipeline ({label(run.schedule, say)}) in {counted(run.micro_batches, 'micro-batch')} of "
            f"{run.micro_batch} sequences, with each loss divided by {run.micro_batches} and the gradients added up.",
            f"把模型切成 {run.p} 个阶段，学到的还一样吗？两次运行都从同一个基础模型（一个小 GPT）的副本出发，用同一批 "
            f"{batch} 个字符：不切的一次算完；流水线（{label(run.schedule, say)}）分成 {run.micro_batches} 个微批次，每个 "
            f"{run.micro_batch} 条序列，各自的损失除以 {run.micro_batches}，梯度累加。",
        ),
        say(
            f"The base model was trained once on the text of a small world: its loss is {loss} nats per character; "
            f"knowing only how often each character comes would give {entropy}.",
            f"基础模型只训练一次，学的是一个小世界的文本：损失为每字符 {loss} 奈特；若只知道各字符的出现频率，则为 "
            f"{entropy}。",
        ),
    )


def _stages(run: RealRun, say: Say) -> Table:
    return Table(
        title=say("The stages", "各阶段"),
        columns=(
            Column(title=say("stage", "阶段"), kind="count"),
            Column(title=say("holds", "包含")),
            Column(title=say("parameters", "参数"), kind="count"),
            Column(title=say("most micro-batches held", "同时保留的微批次数"), kind="count"),
        ),
        rows=tuple(
            (stage, say(" + ", "、").join(unit_name(unit, say) for unit in units), parameters, held)
            for stage, (units, parameters, held) in enumerate(
                zip(run.units, run.parameters, run.peak_inflight, strict=True)
            )
        ),
    )


def unit_name(unit: str, say: Say) -> str:
    """What people call ``embedding``, ``blocks.0`` or ``head``."""
    named = {
        "embedding": say("embeddings", "嵌入"),
        "head": say("final LayerNorm and output layer", "最后的 LayerNorm 与输出层"),
    }
    number = int(unit.removeprefix("blocks.")) + 1 if unit not in named else 0
    return named.get(unit, say(f"block {number}", f"第 {number} 块"))


def _results(run: RealRun, say: Say) -> Table:
    return Table(
        title=say("One step, uncut and cut", "同一步，不切与切开"),
        columns=(
            Column(title=say("run", "运行")),
            Column(title=say("loss", "损失"), kind="number"),
            Column(title=say("largest gradient", "最大梯度"), kind="number"),
        ),
        rows=(
            (say("uncut", "不切"), run.uncut_loss, run.uncut_gradient),
            (say("cut", "切开"), run.cut_loss, run.cut_gradient),
            (say("largest difference", "最大差值"), abs(run.cut_loss - run.uncut_loss), run.largest_difference),
        ),
        emphasis=frozenset({2}),
        note=say(
            "Loss in nats per character. Gradients by size; the largest difference is over every single parameter.",
            "损失单位为每字符奈特。梯度取绝对值；最大差值是在所有参数上逐个比较得到的。",
        ),
    )


def _traffic(run: RealRun, say: Say) -> Table:
    neighbours = say("point to point, to the next stage", "点对点，发给下一阶段")
    back = say("point to point, to the stage before", "点对点，发给上一阶段")
    return Table(
        title=say("What travels in one step", "一步之内传输的数据"),
        columns=(
            Column(title=say("what", "内容")),
            Column(title=say("how", "方式")),
            Column(title=say("bytes", "字节"), kind="count"),
        ),
        rows=(
            (say("activations", "激活值"), neighbours, run.forward_bytes),
            (say("their gradients", "激活值的梯度"), back, run.backward_bytes),
            (
                say("with data parallelism instead: all gradients", "若改用数据并行：全部梯度"),
                say("all-reduce over all copies", "在所有副本间做 all-reduce"),
                run.all_reduce_bytes,
            ),
        ),
        note=say(
            "The pipeline's bytes were counted as they were sent; the last line is parameters × 4 bytes.",
            "流水线的字节数是发送时实际计数的；最后一行是参数数 × 4 字节。",
        ),
    )
