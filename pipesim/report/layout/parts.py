"""What a report says of a cluster of several parts: what they are, and which ranks of the pipeline lie on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim.report.document import Column, Table
from pipesim.report.say import Say

Row = Mapping[str, Any]


def parts(row: Row, parts: Sequence[Row], say: Say) -> tuple[Table, ...]:
    """What a cluster is made of, if it has several parts, and the ranks of the pipeline that lie on each."""
    if not parts or row["rank_parts"] is None:
        return ()
    clusters = [part["cluster"] for part in parts]
    return (
        Table(
            title=say("Parts of the cluster", "集群的组成部分"),
            columns=(
                Column(title=say("part", "部分"), kind="count"),
                Column(title=say("cluster", "集群")),
                Column(title="GPU"),
                Column(title=say("nodes", "节点"), kind="count"),
                Column(title=say("GPUs", "GPU 数"), kind="count"),
                Column(title=say("memory of one", "单卡显存"), kind="bytes"),
                Column(title=say("ranks of the pipeline", "流水线 rank")),
            ),
            rows=tuple(
                (
                    index, cluster["name"], cluster["chip"], part["nodes"], part["nodes"] * cluster["gpus_per_node"],
                    cluster["memory_gb"] * 1e9, _runs([rank for rank, on in enumerate(row["rank_parts"]) if on >> index & 1]),
                )
                for index, (part, cluster) in enumerate(zip(parts, clusters, strict=True))
            ),
            note=say(
                "Global ranks are numbered node after node through the parts. A rank of the pipeline that stands in several "
                "lines has replicas, or GPUs of one, on each of them: the slowest decides.",
                "全局 rank 按各部分的节点依次编号。出现在多行的流水线 rank "
                "在这些部分上都有副本（或同一副本的 GPU），以最慢者为准。",
            ),
        ),
    )  # fmt: skip


def _runs(ranks: Sequence[int]) -> str:
    """
    >>> _runs([0, 1, 2, 5]), _runs([])
    ('0-2, 5', '')
    """
    begins = [rank for rank in ranks if rank - 1 not in ranks]
    ends = [rank for rank in ranks if rank + 1 not in ranks]
    return ", ".join(
        f"{first}-{last}" if last > first else str(first) for first, last in zip(begins, ends, strict=True)
    )


def rank_limits(row: Row, parts: Sequence[Row]) -> list[float]:
    """Bytes of each rank's smallest GPU."""
    if not parts or row["rank_parts"] is None:
        return [row["memory_limit_bytes"]] * row["p"]
    sizes = [part["cluster"]["memory_gb"] * 1e9 for part in parts]
    return [min(size for part, size in enumerate(sizes) if on >> part & 1) for on in row["rank_parts"]]
