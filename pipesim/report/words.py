"""Words that reports share, in both languages: what items are called, what measures mean, where a study comes from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pipesim.report.formats import show, with_runs
from pipesim.report.say import Say, english

TIME_WORDS = {
    "matmul": ("matrix products", "矩阵乘法"),
    "attention": ("attention", "注意力"),
    "elementwise": ("elementwise kernels", "逐元素算子"),
    "launch": ("waiting for the host", "等待主机下发"),
    "recompute": ("recomputation", "重计算"),
    "tp": ("tensor-parallel communication", "张量并行通信"),
    "cp": ("context-parallel communication", "上下文并行通信"),
    "ep": ("expert-parallel communication", "专家并行通信"),
    "vocab": ("communication of a spread vocabulary", "词表分散的通信"),
    "imbalance": ("imbalance of stages", "各段不均衡"),
    "bubble": ("bubble (fill and drain)", "气泡（填充与排空）"),
    "pp_exposed": ("pipeline sends, exposed", "流水线传输（未隐藏）"),
    "dp_exposed": ("data-parallel communication, exposed", "数据并行通信（未隐藏）"),
    "optimizer": ("optimizer", "优化器"),
    "fixed": ("fixed cost of a step", "每步固定开销"),
}

TIME_GROUPS: tuple[tuple[tuple[str, str], tuple[str, ...]], ...] = (
    (("computing", "计算"), ("matmul", "attention", "elementwise", "launch")),
    (("recomputing", "重计算"), ("recompute",)),
    (("tensor", "张量并行"), ("tp",)),
    (("context, expert, vocabulary", "上下文、专家与词表"), ("cp", "ep", "vocab")),
    (("imbalance", "不均衡"), ("imbalance",)),
    (("bubble", "气泡"), ("bubble",)),
    (("pipeline sends", "流水线传输"), ("pp_exposed",)),
    (("data", "数据并行"), ("dp_exposed",)),
    (("optimizer, fixed", "优化器与固定开销"), ("optimizer", "fixed")),
)
"""The same items, fewer, for where many layouts stand side by side; each is in one group."""

MEMORY_WORDS = {
    "weights": ("weights", "权重"),
    "gradients": ("gradients", "梯度"),
    "optimizer": ("optimizer state", "优化器状态"),
    "activation": ("activations", "激活"),
    "logits": ("logits and loss", "logits 与损失"),
    "buffers": ("gathered weights and fp8 copies", "收集的权重与 fp8 副本"),
    "slack": ("allocator's slack", "分配器余量"),
    "context": ("device context and libraries", "设备上下文与库"),
}

VERDICT_WORDS = {
    "compute": ("compute", "计算"),
    "bubble": ("bubble", "气泡"),
    "imbalance": ("imbalance", "各段不均衡"),
    "tp": ("tp", "张量并行通信"),
    "pp": ("pp", "流水线传输"),
    "dp": ("dp", "数据并行通信"),
    "cp": ("cp", "上下文并行通信"),
    "ep": ("ep", "专家并行通信"),
    "vocab": ("vocab", "词表分散的通信"),
    "memory": ("memory", "显存"),
}

OF_COMPUTE = ("matmul", "attention", "elementwise", "launch", "recompute", "optimizer", "fixed")
"""Items that the verdict ``compute`` counts."""


def bound_by(row: Mapping[str, Any], say: Say = english) -> str:
    """A row's verdict in words; of computing that is mostly waiting for the host, that it is."""
    told = say(*VERDICT_WORDS[row["verdict"]])
    if row["verdict"] == "compute" and 2 * row["launch_s"] > sum(row[f"{item}_s"] for item in OF_COMPUTE):
        return say(f"{told}, most of it waiting for the host to launch kernels", f"{told}，其中大半是等待主机下发内核")
    return told


STATUS_WORDS = {
    "ok": ("fit", "放得下"),
    "infeasible": ("do not fit", "放不下"),
    "invalid": ("break rules", "违反规则"),
    "failed": ("failed", "出错"),
}

COLUMN_WORDS = {
    "model": ("model", "模型"),
    "cluster": ("cluster", "集群"),
    "stack": ("stack", "软件栈"),
    "costs": ("costs", "成本模型"),
    "schedule": ("schedule", "调度"),
    "t": ("t", "t"),
    "p": ("p", "p"),
    "d": ("d", "d"),
    "c": ("c", "c"),
    "e": ("e", "e"),
    "v": ("v", "v"),
    "zero": ("zero", "ZeRO"),
    "recompute": ("recompute", "重计算"),
    "sequence_parallel": ("sequence-parallel", "序列并行"),
    "precision": ("precision", "精度"),
    "attention": ("attention", "注意力算子"),
    "micro_batch": ("micro-batch", "微批大小"),
    "global_batch": ("global-batch", "全局批量"),
    "seq_length": ("seq-length", "序列长度"),
    "settings": ("settings", "其他设置"),
    "gpus": ("gpus", "GPU 数"),
}
"""Columns that say which layout a row is of, as tables title them."""

FLOP_WORDS = {
    "palm": (
        "6 N + 12 L H Q T FLOPs a token (Chowdhery et al. 2022, appendix B: N weights a token is multiplied "
        "with, L layers, H "
        "heads of size Q, T tokens of context; the full square of scores)",
        "每个 token 6 N + 12 L H Q T 次浮点运算（Chowdhery et al. 2022，附录 B：N 为参与相乘的权重数，L "
        "为层数，H 个大小为 Q 的头，"
        "上下文 T 个 token；注意力得分按整个方阵计）",
    ),
    "causal": (
        "6 N + 6 L H Q T FLOPs a token, as palm but without the masked half of attention",
        "每个 token 6 N + 6 L H Q T 次浮点运算，同 palm，但不计注意力被遮住的一半",
    ),
    "kaplan": (
        "6 N FLOPs a token (Kaplan et al. 2020: N weights of the layers, or all parameters with idealised costs)",
        "每个 token 6 N 次浮点运算（Kaplan et al. 2020：N 为各层的权重数，理想化成本下为全部参数）",
    ),
    "narayanan": (
        "96 L h^2 (1 + s / 6h + V / 16Lh) FLOPs a token (Narayanan et al. 2021, equation 3, per token; h "
        "hidden size, s tokens "
        "of context, V vocabulary), which counts recomputation always, so that MFU and HFU are one",
        "每个 token 96 L h^2 (1 + s / 6h + V / 16Lh) 次浮点运算（Narayanan et al. 2021，式 3，按 token 计；h "
        "为隐藏维，s 为上下文 "
        "token 数，V 为词表大小），总是计入重计算，因此 MFU 与 HFU 相同",
    ),
}
"""What each convention of ``costs.flops`` counts."""


def definitions(conventions: Collection[str] = ("palm",), say: Say = english) -> tuple[str, ...]:
    """What the measures mean, with the FLOPs that these conventions count."""
    counts = say("; or ", "；或 ").join(f"{say(*FLOP_WORDS[each])} [{each}]" for each in conventions)
    return (
        say(
            f"MFU = model FLOPs / (time x GPUs x peak dense FLOP/s), with {counts}. HFU = hardware FLOPs / "
            "the same: model "
            "FLOPs and those of recomputation. costs.flops chooses what is counted.",
            f"MFU = 模型浮点运算 /（时间 x GPU 数 x 稠密峰值 FLOP/s），其中{counts}。HFU = 硬件浮点运算 / "
            "同一分母：模型浮点运算加上重计算。"
            "计什么由 costs.flops 选择。",
        ),
        say(
            "Bubble fraction = idle / (p x makespan), for equal stages (p-1)/(m+p-1); bubble overhead = idle /"
            " useful, "
            "(p-1)/m. GB is 1e9 bytes, GiB 2**30 bytes, 7.4 % more. Items of computing and of communication "
            "on the way are "
            "means over the ranks of the pipeline; the slowest rank's excess is imbalance, its idle time "
            "bubble. A fixed cost "
            "is paid once a step: data, logging, waiting for each other.",
            "气泡占比 = 空闲 /（p x 总时长），各段相等时为 (p-1)/(m+p-1)；气泡开销 = 空闲 / 有用，为 (p-1)/m。"
            "GB 是 1e9 字节，GiB 是 "
            "2**30 字节，多 7.4 %。计算各项与途中的通信是流水线各 rank 的平均；最慢 rank 多出的部分是不均衡，"
            "它的空闲时间是气泡。"
            "固定开销每步付一次：数据、日志、互相等待。",
        ),
        say(
            "Activations are those in flight and the layer that is being recomputed; slack is what the "
            "allocator holds above "
            "what is asked for, the device context what driver and libraries hold.",
            "激活包括在途的和正在重计算的那一层；余量是分配器多占的部分；设备上下文是驱动和库占用的部分。",
        ),
    )


def layout_name(row: Mapping[str, Any], varied: Collection[str] = ("micro_batch", "schedule")) -> str:
    """``t4 p12 d8 b2 1f1b``: the degrees (those of 1 beyond t, p, d are left out), and whatever else is ``varied``."""
    degrees = "".join(f" {key}{row[key]}" for key in ("c", "e", "v") if (row[key] or 1) > 1)
    signs = {
        "micro_batch": f"b{row['micro_batch']}", "global_batch": f"B{row['global_batch']}", "zero": f"ZeRO-{row['zero']}",
        "sequence_parallel": "SP" if row["sequence_parallel"] else "", "seq_length": f"s{row['seq_length']}",
    }  # fmt: skip
    words = ("schedule", "recompute", "attention", "precision", "stack", "costs", "model", "cluster", "settings")
    more = [signs[name] for name in signs if name in varied] + [
        with_runs(str(row[name] or "")) for name in words if name in varied
    ]
    return " ".join([f"t{row['t']} p{row['p']} d{row['d'] or '?'}{degrees}", *filter(None, more)])


def trust(row: Mapping[str, Any], say: Say = english) -> str:
    """How far off the seconds may be: their interval, and where they extrapolate."""
    if row["costs"] != "full":
        return say(
            "Idealised costs: closed forms to learn from, not to plan with.",
            "理想化成本：用于学习的闭式公式，不用于规划。",
        )
    low, high = show(row["step_time_lo_s"], "seconds"), show(row["step_time_hi_s"], "seconds")
    text = say(
        f"Of runs like this nine in ten lie between {low} and {high}.", f"这类运行十次里有九次在 {low} 到 {high} 之间。"
    )
    if not row["extrapolates"]:
        return text
    return say(f"{text} {row['extrapolates']}", text + extrapolates_zh(row["extrapolates"]))


_OUTSIDE_ZH = (
    (r"(\S+) has not been calibrated", r"\1 未经标定"),
    (r"(\S+) has not been measured with (\S+)", r"\1 没有与 \2 一起测过"),
    (r"mixture-of-experts runs are few", "混合专家的实测很少"),
    (r"fp8 runs are few", "fp8 的实测很少"),
    (r"the model or the number of GPUs is larger than any that was measured", "模型或 GPU 数超过所有实测"),
    (
        r"the sequence is longer or cut over more ranks than any that was measured",
        "序列长度或切分序列的 rank 数超过所有实测",
    ),
)


_EXTRAPOLATES = (("Extrapolates", "The"), ("Memory extrapolates", "Its"))


def extrapolates_zh(note: str) -> str:
    """A row's note on extrapolation in Chinese; one with other words than ours stays as it is."""
    whole, memory = (rf"{what}: ([^.]*)\. {which} interval is wider for it\." for what, which in _EXTRAPOLATES)
    found = re.fullmatch(f"(?:{whole})? ?(?:{memory})?", note)
    if not found:
        return note
    parts = []
    for what, reasons in zip(("外推", "显存外推"), found.groups(), strict=True):
        said = [_outside_zh(reason) or "" for reason in reasons.split("; ")] if reasons else []
        if not all(said):
            return note
        parts += [f"{what}：{'；'.join(said)}。区间因此更宽。"] if said else []
    return "".join(parts)


def _outside_zh(reason: str) -> str | None:
    for pattern, words in _OUTSIDE_ZH:
        if found := re.fullmatch(pattern, reason):
            return found.expand(words)
    return None
