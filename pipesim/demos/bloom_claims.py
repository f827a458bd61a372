"""What the rows of ``bloom_3d`` show, as claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.demos.claims import Claim, counted
from pipesim.report.formats import show
from pipesim.results.schema import Row

BLOOM = "bloom_176b"


def claims(rows: Sequence[Row], config: Mapping[str, Any]) -> Iterator[Claim]:
    """In the order they are read; a claim about a layout that is not among the rows is left out."""
    conf, gpus_per_node = config["demo"]["bloom_3d"], config["cluster"]["gpus_per_node"]
    used, too_small, longer, wider = (find(rows, conf[name]) for name in ("used", "too_small", "longer", "wider"))
    if rows:
        yield _degrees(rows)
    if too_small is not None:
        yield _too_small(too_small)
    if used is not None:
        yield _used(used, gpus_per_node)
    if used is not None and longer is not None:
        yield _longer(longer, used)
    if used is not None and wider is not None:
        yield _wider(wider, used, gpus_per_node)
    if used is not None and used["model"] == BLOOM:
        yield _no_formula([row for row in rows if row["fits"]], used)


def find(rows: Sequence[Row], layout: Mapping[str, int]) -> Row | None:
    return next((row for row in rows if all(row[key] == layout[key] for key in ("t", "p", "d"))), None)


def cut(row: Row) -> str:
    return f"{row['t']} × {row['p']} × {row['d']}"


def _shown(row: Row) -> tuple[str, str, str]:
    """Parameters and model states of a GPU, and the bubble fraction."""
    return (
        show(row["params_per_gpu"], "parameters"),
        show(row["model_state_bytes"], "bytes"),
        show(row["bubble_fraction"], "percent"),
    )


def _degrees(rows: Sequence[Row]) -> Claim:
    totals = [row["params_per_gpu"] * row["t"] * row["p"] for row in rows]
    total = totals[0]
    return Claim(
        holds=max(totals) - min(totals) <= 1e-9 * max(totals),
        en=f"t and p decide how many of the {total / 1e9:g} billion parameters a GPU holds, one in t · p; d decides "
        "how many copies train side by side.",
        zh=f"t 和 p 决定一块 GPU 放 {total / 1e8:g} 亿参数中的多少（t · p 分之一），d 决定有几份副本并排训练。",
    )


def _too_small(row: Row) -> Claim:
    parameters, states, _ = _shown(row)
    limit = show(row["memory_limit_bytes"], "bytes")
    short = show(row["memory_bytes"] - row["memory_limit_bytes"], "bytes")
    return Claim(
        holds=not row["fits"],
        en=f"If t · p is too small, the model does not fit: {cut(row)} puts {parameters} parameters on a GPU, whose "
        f"{states} of model states are {short} more than its {limit}.",
        zh=f"t · p 太小就放不下：{cut(row)} 让一块 GPU 放 {parameters} 参数，模型状态 {states}，比显存 {limit} 还多 "
        f"{short}。",
    )


def _used(row: Row, gpus_per_node: int) -> Claim:
    parameters, states, fraction = _shown(row)
    free = 1 - row["memory_bytes"] / row["memory_limit_bytes"]
    return Claim(
        holds=row["model"] == BLOOM and free > 0.5 and 1 < row["t"] <= gpus_per_node,
        en=f"BLOOM's {cut(row)} keeps {parameters} parameters and {states} of model states on a GPU and leaves "
        f"{show(free, 'percent')} of its memory to activations. Each pipeline gets "
        f"{counted(row['num_microbatches'], 'micro-batch')}, so the bubble fraction is {fraction}, and tensor "
        "parallelism stays inside one machine.",
        zh=f"BLOOM 采用的 {cut(row)} 在每块 GPU 上放 {parameters} 参数、{states} 模型状态，把 {show(free, 'percent')} "
        f"的显存留给激活值；每条流水线有 {row['num_microbatches']} 个微批次，所以气泡占比为 {fraction}；张量并行不出"
        "一台机器。",
    )


def _longer(row: Row, used: Row) -> Claim:
    parameters, states, fraction = _shown(row)
    return Claim(
        holds=row["t"] < used["t"]
        and row["p"] > used["p"]
        and row["num_microbatches"] < used["num_microbatches"]
        and row["bubble_fraction"] > used["bubble_fraction"],
        en=f"{cut(row)}, a longer pipeline in place of tensor parallelism, holds {parameters} parameters and {states} "
        f"of model states at a bubble fraction of {fraction}: pipelines of {row['p']} stages instead of {used['p']}, "
        f"with {counted(row['num_microbatches'], 'micro-batch')} each instead of {used['num_microbatches']}.",
        zh=f"{cut(row)} 用更长的流水线代替张量并行：每块 GPU 放 {parameters} 参数、{states} 模型状态，气泡占比却是 "
        f"{fraction}：流水线从 {used['p']} 个阶段变成 {row['p']} 个，每条的微批次从 {used['num_microbatches']} 个变"
        f"成 {row['num_microbatches']} 个。",
    )


def _wider(row: Row, used: Row, gpus_per_node: int) -> Claim:
    fraction = show(row["bubble_fraction"], "percent")
    return Claim(
        holds=row["bubble_fraction"] < used["bubble_fraction"] and used["t"] < row["t"] == gpus_per_node,
        en=f"{cut(row)} has a bubble fraction of only {fraction}, but spends all {row['t']} GPUs of a machine on "
        "tensor parallelism: more communication in every layer, and smaller matrices.",
        zh=f"{cut(row)} 的气泡占比只有 {fraction}，但一台机器的 {row['t']} 块 GPU 全用于张量并行：每层通信更多，矩阵也"
        "更小。",
    )


def _no_formula(fitting: Sequence[Row], used: Row) -> Claim:
    """Where the best by bubble, by memory and the one that was used are three different layouts."""
    by_bubble = min(fitting, key=lambda row: row["bubble_fraction"], default=used)
    by_memory = min(fitting, key=lambda row: row["memory_bytes"], default=used)
    return Claim(
        holds=len({cut(row) for row in (by_bubble, by_memory, used)}) == 3,
        en=f"No formula gives the optimum: the smallest bubble fraction here is that of {cut(by_bubble)}, the "
        f"smallest model states those of {cut(by_memory)}, and BLOOM trained with neither. Memory, bubble, "
        "communication and matrix size trade off, and measured throughput decides, as when BLOOM's team compared "
        "micro-batch sizes.",
        zh=f"没有公式能给出最优解：这里气泡占比最小的是 {cut(by_bubble)}，模型状态最小的是 {cut(by_memory)}，而 BLOOM "
        "两者都没选。显存、气泡、通信与矩阵大小此消彼长，最终由实测吞吐量决定，正如 BLOOM 团队比较不同微批次大小时那"
        "样。",
    )
