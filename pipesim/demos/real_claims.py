"""What the run of ``real_pipeline`` shows, as claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipesim.demos.claims import Claim
from pipesim.demos.real_runs import NUMBER_BYTES, RealRun
from pipesim.plan import grid
from pipesim.report.formats import show

SAME = 1e-5
"""Gradients whose largest difference is below this share of the largest gradient differ by float32 rounding alone."""

FAR_LESS = 0.1


def claims(run: RealRun, config: Mapping[str, Any]) -> Iterator[Claim]:
    """In the order they are read; the last looks at the config's own model, cluster and layout."""
    yield _same(run)
    yield _only_the_cut(run)
    yield _held(run)
    yield _more_than_the_parameters(run)
    yield from _far_less_in_a_large_model(config)


def _same(run: RealRun) -> Claim:
    difference, gradient = show(run.largest_difference, "number"), show(run.uncut_gradient, "number")
    return Claim(
        holds=run.largest_difference <= SAME * run.uncut_gradient and abs(run.cut_loss - run.uncut_loss) <= SAME,
        en=f"No gradient differs by more than {difference} between the two runs, where the largest gradient is "
        f"{gradient}: rounding, from another order of summation. Pipelining with gradient accumulation is "
        "mathematically the same algorithm.",
        zh=f"两次运行的梯度最多相差 {difference}，而最大的梯度是 {gradient}：这只是求和顺序不同带来的舍入误差。流水线加"
        "梯度累积在数学上是同一个算法。",
    )


def _only_the_cut(run: RealRun) -> Claim:
    sizes = [run.p - 1] * (run.p > 2) + [run.micro_batches, run.micro_batch, run.length, run.width, NUMBER_BYTES]
    product, total = " × ".join(map(str, sizes)), f"{run.forward_bytes:,}"
    return Claim(
        holds=run.p > 1 and run.forward_bytes == run.backward_bytes == run.activation_bytes,
        en=f"Only the activation at the cut travels, and its gradient back: {product} bytes = {total} bytes forward, "
        "just as many back, point to point between neighbours. There is no all-reduce.",
        zh=f"传输的只有切口处的激活值，以及传回的激活值梯度：向前 {product} 字节 = {total} 字节，向后同样多，都在相邻阶"
        "段之间点对点传输，没有 all-reduce。",
    )


def _held(run: RealRun) -> Claim:
    held = ", ".join(map(str, run.peak_inflight))
    return Claim(
        holds=run.peak_inflight == run.simulated_inflight,
        en=f"Counted while it ran, the stages held the activations of at most {held} micro-batches at once: exactly "
        "what the simulation of this order says.",
        zh=f"运行时计数得到，各阶段同时保留的激活值最多为 {held} 个微批次，与模拟这一执行顺序得到的完全一致。",
    )


def _more_than_the_parameters(run: RealRun) -> Claim:
    parameters, reduced, sent = f"{sum(run.parameters):,}", f"{run.all_reduce_bytes:,}", f"{run.forward_bytes:,}"
    return Claim(
        holds=run.forward_bytes > run.all_reduce_bytes,
        en="Data parallelism would all-reduce one gradient for each parameter instead: "
        f"{parameters} × {NUMBER_BYTES} bytes = {reduced} bytes. In this toy the {sent} bytes of activations are more "
        "than that.",
        zh=f"数据并行则要对每个参数的梯度做 all-reduce：{parameters} × {NUMBER_BYTES} 字节 = {reduced} 字节。在这个玩具模"
        f"型里，激活值的 {sent} 字节比它还多。",
    )


def _far_less_in_a_large_model(config: Mapping[str, Any]) -> Iterator[Claim]:
    """One replica's batch at a cut beside the model's parameters, at equally many bytes a number."""
    (asked,) = grid.rows([config])
    if asked["status"] not in ("ok", "infeasible"):
        return
    sequences, tokens = asked["global_batch"] // asked["d"], asked["seq_length"]
    activations = sequences * tokens * config["model"]["hidden"] * NUMBER_BYTES
    gradients = asked["model_params"] * NUMBER_BYTES
    share = show(activations / gradients, "percent")
    cut, whole = show(activations, "bytes"), show(gradients, "bytes")
    yield Claim(
        holds=activations < FAR_LESS * gradients,
        en=f"In a large model it is far less: the {sequences} sequences of {tokens:,} tokens that one replica of "
        f"{asked['model']} takes in a step make {cut} at a cut, {share} of the {whole} of its gradients. That is why "
        "pipelines suit the slower links between machines.",
        zh=f"在大模型里则少得多：{asked['model']} 的一份副本每步处理 {sequences} 条各 {tokens:,} 个词元的序列，切口处共 "
        f"{cut}，只有其梯度 {whole} 的 {share}。所以流水线适合机器之间较慢的链路。",
    )
