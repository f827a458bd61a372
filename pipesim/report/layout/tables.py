"""The tables of one layout's report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipesim.report.document import Column, Table
from pipesim.report.formats import show
from pipesim.report.layout.parts import rank_limits
from pipesim.report.say import Say, word
from pipesim.report.sweep.answer import FIXES, TO_TRY
from pipesim.report.sweep.tables import flag
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS
from pipesim.schedules.action import Schedule

Row = Mapping[str, Any]
Line = tuple[str, float]


def degrees(row: Row, say: Say) -> Table:
    names = {
        say("tensor t", "张量 t"): "t",
        say("pipeline p", "流水线 p"): "p",
        say("data d", "数据 d"): "d",
        say("context c", "上下文 c"): "c",
        say("expert e", "专家 e"): "e",
        say("virtual v", "虚拟段 v"): "v",
        "ZeRO": "zero",
    }
    return Table(
        title=say("Layout", "布局"),
        columns=(
            *(Column(title=name, kind="count") for name in names),
            Column(title=say("sequence parallel", "序列并行"), kind="text"),
        ),
        rows=((*(row[key] for key in names.values()), flag(row["sequence_parallel"], say)),),
    )


def recipe(row: Row, say: Say) -> Table:
    numbers = {
        say("micro-batch", "微批大小"): "micro_batch",
        say("global batch", "全局批量"): "global_batch",
        "m": "num_microbatches",
        say("tokens", "token 数"): "seq_length",
    }
    words = {
        say("schedule", "调度"): "schedule",
        say("recompute", "重计算"): "recompute",
        say("precision", "精度"): "precision",
        say("attention", "注意力算子"): "attention",
    }
    return Table(
        title=say("Training", "训练"),
        columns=(*(Column(title=name, kind="count") for name in numbers), *(Column(title=name) for name in words)),
        rows=(tuple(row[key] for key in (numbers | words).values()),),
    )


def seconds(row: Row, say: Say) -> Table:
    total = row["step_time_s"]
    items = [(say(*words), row[f"{item}_s"]) for item, words in TIME_WORDS.items()]
    return _shares(
        title=say("Where the step's seconds go", "一步的时间去向"),
        columns=(
            Column(title=say("item", "项目")),
            Column(title=say("time", "用时"), kind="seconds"),
            Column(title=say("share", "占比"), kind="percent"),
        ),
        lines=[item for item in items if item[1] > 0],
        total=(say("step", "步时"), total),
        of=total,
        note=say(
            "Imbalance, bubble and exposed sends together are the mean time in which a rank neither computes "
            "nor talks on the "
            "way. The bubble fraction leaves out how long ranks stand still while they hand results on.",
            "不均衡、气泡和未隐藏的传输合起来，是一个 rank 既不计算也不通信的平均时间。气泡占比不含 rank "
            "交出结果时的停顿。",
        ),
    )


def _shares(
    *, title: str, columns: tuple[Column, ...], lines: Sequence[Line], total: Line, of: float, note: str
) -> Table:
    """Named values, then their total, each with its share ``of`` a whole."""
    rows = tuple((name, value, value / of) for name, value in (*lines, total))
    return Table(title=title, columns=columns, rows=rows, emphasis=frozenset({len(lines)}), note=note)


def gains(row: Row, say: Say) -> Table:
    """Each fix alone; what nobody has a key for comes last."""
    total, found = row["step_time_s"], json.loads(row["fixes"] or "{}")
    lines = [
        (say(*FIXES[fix]), found[fix], found[fix] / total, TO_TRY.get(fix, ""))
        for fix in sorted(found, key=lambda fix: (fix not in TO_TRY, -found[fix]))
    ]
    return Table(
        title=say("What each fix could gain at most", "每种改进至多省多少"),
        columns=(
            Column(title=say("fix", "改进")),
            Column(title=say("seconds", "秒数"), kind="seconds"),
            Column(title=say("share", "占比"), kind="percent"),
            Column(title=say("keys to try", "可试的键")),
        ),
        rows=tuple(lines),
        note=say(
            "Upper limits, each alone, for the same place of every stage: with what shorter stages save in "
            "bubble and imbalance, "
            "and as if nothing else grew.",
            "均为上限，各自单独计算，各段位置不变：包括各段变短后在气泡和不均衡上的节省，并假定其他不增加。",
        ),
    )


_DIMENSIONS = {
    "tp": ("tensor", "张量"),
    "cp": ("context", "上下文"),
    "ep": ("expert", "专家"),
    "vocab": ("vocabulary", "词表"),
    "pp": ("pipeline", "流水线"),
    "dp": ("data", "数据"),
    "tied": ("tied embeddings", "共享词嵌入"),
}


def communication(row: Row, say: Say) -> Table:
    """Dimension x collective x group x link; messages x bytes x what an algorithm sends of each is sent per GPU."""
    lines = [
        (
            word(dimension, _DIMENSIONS, say), kind, ranks, say("network", "网络") if leaves else say("inside node", "节点内"),
            sharing if leaves else None, round(count, 6) if count % 1 else int(count), size, sent,
        )
        for dimension, kind, ranks, leaves, sharing, count, size, sent in json.loads(row["communication"])
    ]  # fmt: skip
    return Table(
        title=say("What is sent in a step", "一步中发送的数据"),
        columns=(
            Column(title=say("dimension", "维度")),
            Column(title=say("collective", "集合通信")),
            Column(title=say("ranks", "rank 数"), kind="count"),
            Column(title=say("link", "链路")),
            Column(title=say("groups on one network", "共用网络的组数"), kind="count"),
            Column(title=say("messages a step", "每步消息数"), kind="count"),
            Column(title=say("one message", "单条消息"), kind="bytes"),
            Column(title=say("sent per GPU", "每 GPU 发送"), kind="bytes"),
        ),
        rows=tuple(lines),
        note=say(
            "On the rank that sends most, for each dimension. Of n ranks, each sends (n-1)/n of a message in "
            "a reduce-scatter, "
            "all-gather, all-to-all or ring pass, twice that in an all-reduce, all of it to the next stage; a "
            "relayed all-to-all counts what crosses the network, once to each node, and what is handed on there. "
            "Groups on one network: "
            "how many groups side by side share the network cards of a node.",
            "各维度取发送最多的 rank。n 个 rank 中，每个在 reduce-scatter、all-gather、all-to-all "
            "或环传中发送消息的 (n-1)/n，all-reduce "
            "中为其两倍，传给下一段则为全部；中继 all-to-all 计入每节点一次的网络发送与节点内转发。"
            "共用网络的组数：有多少组并排共用一个节点的网卡。",
        ),
    )


def held(row: Row, say: Say) -> Table:
    total, limit = row["memory_bytes"], row["memory_limit_bytes"]
    items = [(say(*words), row[f"{item}_bytes"]) for item, words in MEMORY_WORDS.items()]
    rank, params = row["heaviest_rank"], show(row["params_per_gpu"], "parameters")
    return _shares(
        title=say(f"What rank {rank} of the pipeline, the heaviest, holds", f"流水线中最重的 rank {rank} 的占用"),
        columns=(
            Column(title=say("item", "项目")),
            Column(title=say("bytes", "字节"), kind="bytes"),
            Column(title=say("of the GPU", "占 GPU"), kind="percent"),
        ),
        lines=[item for item in items if item[1] > 0],
        total=(say("total", "合计"), total),
        of=limit,
        note=say(
            f"{params} parameters per GPU there; the limit is {show(limit, 'bytes')}.",
            f"该处每 GPU {params} 参数；上限为 {show(limit, 'bytes')}。",
        ),
    )


def ranks(row: Row, schedule: Schedule, say: Say, parts: Sequence[Row] = ()) -> Table:
    """Memory and in-flight count of every rank, units and seconds of the stages that ``schedule`` gives it."""
    held, flying, limits = row["rank_memory_bytes"], row["peak_inflight"], rank_limits(row, parts)
    stages_of = [sorted(set(part.tolist())) for part in np.split(schedule.stage, schedule.rank_start[1:-1])]
    forward_s, *backward_s = (row[f"stage_{op}_s"] for op in ("forward", "input_grad", "weight_grad"))
    best = show(row["efficiency_bound"], "percent")
    return Table(
        title=say("Ranks of the pipeline", "流水线的各 rank"),
        columns=(
            Column(title="rank", kind="count"),
            Column(title=say("place", "位置")),
            Column(title=say("units", "单元")),
            Column(title=say("in flight", "在途"), kind="count"),
            Column(title=say("memory", "显存"), kind="bytes"),
            Column(title=say("of the GPU", "占 GPU"), kind="percent"),
            Column(title=say("forward", "前向"), kind="seconds"),
            Column(title=say("backward", "反向"), kind="seconds"),
        ),
        rows=tuple(
            (
                rank,
                _place(row, rank, say),
                " + ".join(str(row["stage_units"][stage]) for stage in stages),
                flying[rank],
                held[rank],
                held[rank] / limits[rank],
                sum(forward_s[stage] for stage in stages),
                sum(op_s[stage] for op_s in backward_s for stage in stages),
            )
            for rank, stages in enumerate(stages_of)
        ),
        note=say(
            "Units are the embedding, the layers and the head. This partition lets the pipeline reach "
            f"{best} at best (mean work over the slowest rank's).",
            f"单元为词嵌入、各层和输出头。这种划分下流水线至多达到 {best}（平均工作量除以最慢 rank 的工作量）。",
        ),
    )


def _place(row: Row, rank: int, say: Say) -> str:
    """What to compare a rank by: the ends hold the tables, the middle layers alone, the heaviest decides what fits."""
    places = {
        say("first", "首"): 0,
        say("middle", "中"): row["p"] // 2,
        say("last", "末"): row["p"] - 1,
        say("heaviest", "最重"): row["heaviest_rank"],
    }
    return say(", ", "、").join(place for place, at in places.items() if at == rank)


_CAUSES_ZH = {
    "warm up": "预热",
    "hand over": "等待交出结果",
    "sending": "正在发送",
    "imbalance": "不均衡",
    "waiting": "等待他人",
    "link busy": "链路占用",
    "travel": "传输途中",
    "delay": "原因不明",
    "cool down": "排空",
    "barrier": "优化器屏障",
    "unused": "没有工作",
}


def idle(row: Row, idle_s: Mapping[str, float], say: Say) -> Table:
    """Why ranks stand still, as the mean over ranks; the causes sum to the bubble."""
    ranks, makespan_s = row["p"], row["makespan_s"]
    return _shares(
        title=say("Why ranks are idle, mean over ranks", "各 rank 为何空闲（平均）"),
        columns=(
            Column(title=say("cause", "原因")),
            Column(title=say("time", "用时"), kind="seconds"),
            Column(title=say("of the makespan", "占总时长"), kind="percent"),
        ),
        lines=[(say(cause, _CAUSES_ZH[cause]), seconds / ranks) for cause, seconds in idle_s.items()],
        total=(say("all", "合计"), sum(idle_s.values()) / ranks),
        of=makespan_s,
        note=say(
            "Imbalance: what a rank waits because it had less to do than the slowest. Travel: a message is on its way.",
            "不均衡：rank 因工作少于最慢者而等待。传输途中：消息正在路上。",
        ),
    )


def pipeline(row: Row, lower_bound_s: float, say: Say) -> Table:
    blocks = not row["hop_s"] and bool(row["pp_exposed_s"])
    figures = (row["makespan_s"], lower_bound_s, row["bubble_fraction"], row["bubble_overhead"])
    note = say(
        "One send has no figure: sends of this stack block, and stages stand still for them, which is in their times.",
        "不列一次传输：此栈的传输会阻塞，各段停下等待，时间已计入各段。",
    )
    return Table(
        title=say("The simulated pipeline", "模拟的流水线"),
        columns=(
            Column(title=say("makespan", "总时长"), kind="seconds"),
            Column(title=say("lower bound", "下界"), kind="seconds"),
            Column(title=say("bubble fraction (idle/total)", "气泡占比（空闲/总）"), kind="percent"),
            Column(title=say("bubble overhead (idle/useful)", "气泡开销（空闲/有用）"), kind="percent"),
            *(() if blocks else (Column(title=say("one send", "一次传输"), kind="seconds"),)),
        ),
        rows=(figures if blocks else (*figures, row["hop_s"]),),
        note=note if blocks else "",
    )
