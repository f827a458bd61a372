"""Demo: a large model cut t x p x d ways over a cluster, with the lecture's idealised costs and ZeRO-1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from pipesim import config as configs
from pipesim.demos.bloom_claims import BLOOM, claims, cut, find
from pipesim.demos.claims import Say, observations, speaker
from pipesim.plan import grid
from pipesim.report.document import Column, Section, Table
from pipesim.report.formats import show
from pipesim.results.schema import Row
from pipesim.spec_config import CostsConf, ParallelConf

ZERO = 1
"""Optimizer state is divided over the d copies, as in BLOOM's training."""


def bloom_3d(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    """A row for every t x p that divides GPUs and units; those that break another rule are not in the table."""
    say, conf = speaker(config["lang"]), config["demo"]["bloom_3d"]
    model, cluster = configs.build_model(config["model"]), config["cluster"]
    pairs = list(product(conf["t"], conf["p"]))
    divide = [(t, p) for t, p in pairs if t * p > 0 and cluster["gpus"] % (t * p) == 0 and model.units % p == 0]
    rows = [{**row, "case": "bloom_3d"} for row in grid.rows(_asked(config, t, p) for t, p in divide)]
    shown = [row for row in rows if row["status"] in ("ok", "infeasible")]
    left_out = [pair for pair in pairs if pair not in {(row["t"], row["p"]) for row in shown}]
    section = Section(
        title=say("Three ways to cut at once: tensor × pipeline × data", "三种切法叠加：张量 × 流水线 × 数据"),
        blocks=(
            *_introduction(config, model.units, say),
            _table(shown, config, _left_out(left_out, cluster["gpus"], model.units, say), say),
            *observations(claims(shown, config), say),
        ),
    )
    return section, rows


def _asked(config: Mapping[str, Any], t: int, p: int) -> dict[str, Any]:
    lecture = {"parallel": asdict(ParallelConf(t=t, p=p, zero=ZERO)), "costs": asdict(CostsConf(kind="lecture"))}
    return {**config, **lecture}


def _introduction(config: Mapping[str, Any], units: int, say: Say) -> tuple[str, str]:
    model, cluster, training = config["model"], config["cluster"], config["training"]
    memory = show(cluster["memory_gb"] * 1e9, "bytes")
    return (
        say(
            f"How does a pipeline combine with tensor and data parallelism? {model['name']} on {cluster['gpus']} GPUs "
            f"of {cluster['name']} ({memory} each), cut t × p × d ways: t GPUs share each layer, p stages follow "
            f"each other, d copies train side by side. A step takes {training['global_batch']} sequences in "
            f"micro-batches of {training['micro_batch']}; ZeRO-1 spreads the optimizer state over the d copies.",
            f"流水线怎样与张量并行、数据并行配合？这里把 {model['name']} 按 t × p × d 切到 {cluster['name']} 的 "
            f"{cluster['gpus']} 块 GPU（每块 {memory}）上：t 块 GPU 合算每一层，p 个阶段前后相接，d 份副本并排训练。"
            f"每步 {training['global_batch']} 条序列，微批次大小为 {training['micro_batch']}；ZeRO-1 把优化器状态分摊"
            "到 d 份副本上。",
        ),
        say(
            f"Idealised: {units} equal blocks ({model['layers']} layers, and the embeddings at both ends counted as "
            "one each), communication is free, and memory is the model states alone, 2 + 2 + 12 / d bytes per "
            "parameter.",
            f"这是理想化的模型：{units} 个相同的块（{model['layers']} 层，再加首尾嵌入各算一块），通信不花时间，"
            "显存只算模型状态，每个参数 2 + 2 + 12 / d 字节。",
        ),
    )


def _table(rows: Sequence[Row], config: Mapping[str, Any], note: str, say: Say) -> Table:
    used = find(rows, config["demo"]["bloom_3d"]["used"])
    return Table(
        title=say("Every layout that divides evenly", "能整除的全部切法"),
        columns=(
            Column(title="t × p × d"),
            Column(title=say("parameters/GPU", "参数/GPU"), kind="parameters"),
            Column(title=say("model states", "模型状态"), kind="bytes"),
            Column(title="m", kind="count"),
            Column(title=say("bubble fraction", "气泡占比"), kind="percent"),
            Column(title=say("data-parallel sent", "数据并行发送"), kind="bytes"),
            Column(title=say("notes", "备注")),
        ),
        rows=tuple(
            (
                cut(row),
                row["params_per_gpu"],
                row["model_state_bytes"],
                row["num_microbatches"],
                row["bubble_fraction"],
                row["dp_bytes_per_gpu"],
                _notes(row, used, config["cluster"]["gpus_per_node"], say),
            )
            for row in rows
        ),
        emphasis=frozenset(k for k, row in enumerate(rows) if row is used),
        note=say(
            "m: micro-batches per pipeline and step. Bubble fraction: idle time ÷ total time. Data-parallel sent: "
            "bytes each GPU sends per step for gradients and weights.",
            "m：每条流水线每步的微批次数。气泡占比：空闲时间 ÷ 总时间。数据并行发送：每块 GPU 每步为梯度与权重发送的"
            "字节数。",
        )
        + note,
    )


def _notes(row: Row, used: Row | None, gpus_per_node: int, say: Say) -> str:
    notes = {
        say("does not fit", "放不下"): not row["fits"],
        say("tensor parallel across machines", "张量并行跨机器"): row["t"] > gpus_per_node,
        say("the one BLOOM used", "BLOOM 所用"): row is used and row["model"] == BLOOM,
    }
    return say("; ", "；").join(text for text, holds in notes.items() if holds)


def _left_out(pairs: Sequence[tuple[int, int]], gpus: int, units: int, say: Say) -> str:
    """Which t x p are not in the table, and why: a sentence, or nothing."""
    stages = sorted({p for _, p in pairs if p < 1 or units % p})
    rest = [(t, p) for t, p in pairs if p not in stages]
    uneven = [f"{t} × {p}" for t, p in rest if t < 1 or gpus % (t * p)]
    broken = [f"{t} × {p}" for t, p in rest if f"{t} × {p}" not in uneven]
    listed = [", ".join(map(str, some)) for some in (stages, uneven, broken)]
    reasons = (
        say(f"p = {listed[0]} (does not divide {units} blocks)", f"p = {listed[0]}（不能整除 {units} 个块）"),
        say(f"t × p = {listed[1]} (does not divide {gpus} GPUs)", f"t × p = {listed[1]}（不能整除 {gpus} 块 GPU）"),
        say(f"t × p = {listed[2]} (see the results for the reason)", f"t × p = {listed[2]}（原因见结果表）"),
    )
    named = say("; ", "；").join(reason for reason, some in zip(reasons, listed, strict=True) if some)
    return say(f" Left out: {named}.", f"未列出：{named}。") if named else ""
