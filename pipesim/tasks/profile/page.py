"""The report of a profile: what was written, and every measured curve beside what the written constants predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipesim.costs.kernels import Machine, tile_efficiency
from pipesim.report.document import Axis, Block, Chart, Column, Document, Mark, Observations, Section, Table
from pipesim.report.formats import show
from pipesim.specs import ClusterSpec, CostConstants, StackSpec
from pipesim.tasks.profile.fit import COUNTED_BYTES, THICK, Fitted, links_s, machine, products_s, start_s

if TYPE_CHECKING:
    from pipesim.execute.profile import Device, Kernels
    from pipesim.execute.profile_links import Message

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}
QUIET = 0.9
"""A smaller share of a core is worth a warning."""
BESIDE = (
    Column(title="measured", kind="seconds"), Column(title="predicted", kind="seconds"), Column(title="error", kind="percent"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything the report tells. ``cluster`` and ``stack`` are those written, ``base`` the stack it began with."""

    name: str
    source: str
    device: Device
    dtype: str
    kernels: Kernels
    messages: Sequence[Message]
    fitted: Fitted
    cluster: ClusterSpec
    stack: StackSpec
    costs: CostConstants
    base: str

    @property
    def on(self) -> Machine:
        return machine(self.cluster, self.stack, self.costs, "bf16")


def page(told: Told) -> Document:
    """The claims are computed from this run's own curves."""
    products, attention, links = _products(told), _attention(told), _links(told)
    claims = Observations(
        title="Observations",
        claims=(*_accuracy(products), *_thin(products), *_accuracy(attention, links), *_remarks(told)),
    )
    return Document(
        title=f"Profile of {told.device.name}",
        sections=(
            Section(title="What was measured", blocks=(_use(told), _written(told), claims)),
            Section(title="Matrix products", blocks=(products, _products_chart(told, products))),
            Section(title="Attention", blocks=(attention,)),
            Section(title="Memory", blocks=(_copies(told),)),
            Section(title="Links", blocks=_link_blocks(told, links)),
            Section(title="How to read this", blocks=_definitions(told)),
        ),
    )


def _use(told: Told) -> str:
    groups = ("cluster", "stack", "costs") if told.device.kind == "cpu" else ("cluster", "stack")
    files = ", ".join(f"conf/{group}/{told.name}.yaml" for group in groups)
    chosen = " ".join(f"{group}={told.name}" for group in groups)
    return (
        f"{told.source[:1].upper()}{told.source[1:]}. What was measured stands in {files} of this study. Use it with "
        f"--config-dir STUDY/conf {chosen} behind experiments/run.py, STUDY being this folder. What was not measured is "
        f"that of stack={told.base}."
    )


def _written(told: Told) -> Table:
    fitted, cluster = told.fitted, told.cluster
    peak = "measured, not a datasheet value" if fitted.peak_flops_per_s else "the datasheet's, as in the chosen cluster"
    linked = (
        "fitted: seconds = latency + bytes / bandwidth" if fitted.send else "not measured: as in the chosen cluster"
    )
    link = cluster.intra_node
    rows = (
        ("cluster.peak_tflops", f"{cluster.peak_flops_per_s['bf16'] / 1e12:.4g}", peak),
        (f"stack.gemm_efficiency.{cluster.chip}", show(fitted.gemm_efficiency, "number"), "median of products without a thin side"),
        ("cluster.flash_efficiency.flash", show(fitted.flash_efficiency, "number"), "median over lengths, causal, forward"),
        ("cluster.hbm_gb_per_s", f"{cluster.hbm_bytes_per_s / 1e9:.4g}",
         f"the largest copy over costs.hbm_efficiency={told.costs.hbm_efficiency:g}"),
        ("cluster.intra_node_gb_per_s", f"{link.bandwidth_bytes_per_s / 1e9:.4g}",
         f"all-reduces; {linked}; over costs.intra_node_efficiency={told.costs.intra_node_efficiency:g}"),
        ("cluster.intra_node_latency_us", f"{link.latency_s * 1e6:.4g}", f"messages one way; {linked}"),
    )  # fmt: skip
    columns = (Column(title="key"), Column(title="value"), Column(title="where it comes from"))
    return Table(title="Constants", columns=columns, rows=rows)


def _accuracy(*tables: Table | None) -> list[str]:
    found = []
    for table in tables:
        if table is not None:
            error = [abs(cell) for *_, cell in table.rows if isinstance(cell, float)]
            middle, most = (show(float(each), "percent") for each in (np.median(error), max(error)))
            found.append(f"{table.title}: the seconds predicted are {middle} off in the median, {most} at most.")
    return found


def _thin(table: Table) -> list[str]:
    """How products with a thin side compare with the others, by the table's first three columns and its last."""
    sides = [(min(side for side in row[:3] if isinstance(side, int)), row[-1]) for row in table.rows]
    parts = [[abs(e) for side, e in sides if isinstance(e, float) and (side < THICK) == thin] for thin in (False, True)]
    if not all(parts):
        return []
    thick, thin = (show(float(np.median(part)), "percent") for part in parts)
    return [f"Of these, products with no side below {THICK} are {thick} off in the median, thinner ones {thin}."]


def _remarks(told: Told) -> list[str]:
    fitted, found = told.fitted, list[str]()
    if told.kernels.core_share < QUIET:
        found.append(
            f"Warning: while it computed, this process had a core for only {show(told.kernels.core_share, 'percent')} of the "
            "time: other programs ran on this machine, and the measured times are theirs too."
        )
    left = "written to conf/costs" if told.device.kind == "cpu" else "not written: costs are shared by all machines"
    if fitted.peak_flops_per_s:
        found.append(
            f"The peak of {show(fitted.peak_flops_per_s / 1e9, 'number')} GFLOP/s a process is measured, not a datasheet value: "
            "MFU is then a share of what products reach here."
        )
    if fitted.inner_half_dim is not None:
        found.append(
            f"Products with thick outputs reach half their speed at an inner size of {fitted.inner_half_dim:.0f} on a machine "
            f"as balanced as an A100 (costs.gemm_inner_half_dim, {left})."
        )
    start = start_s(fitted.send, fitted.all_reduce)
    if start is not None:
        found.append(
            f"A collective takes {show(start, 'seconds')} to start beyond its messages (costs.collective_start_us, {left})."
        )
    return found


def _products(told: Told) -> Table:
    predicted = products_s(told.kernels.products, told.on, ELEMENT_BYTES[told.dtype])
    rows = tuple(
        (each.rows, each.outputs, each.inputs, each.flops / each.seconds / 1e9,
         float(tile_efficiency(each.rows, each.outputs, told.cluster.multiprocessors)),
         each.seconds, guess, guess / each.seconds - 1)
        for each, guess in zip(told.kernels.products, predicted, strict=True)
    )  # fmt: skip
    sizes = (*(Column(title=title, kind="count") for title in ("M", "N", "K")), Column(title="GFLOP/s", kind="number"))
    columns = (*sizes, Column(title="useful share of tiles", kind="percent"), *BESIDE)
    return Table(title="Matrix products (M x K)(K x N)", columns=columns, rows=rows)


def _attention(told: Told) -> Table:
    reached = told.on.peak_flops_per_s * told.on.flash_efficiency
    rows = tuple(
        (each.length, each.heads, each.head_dim, each.flops / each.seconds / 1e9,
         each.seconds, each.flops / reached, each.flops / reached / each.seconds - 1)
        for each in told.kernels.attention
    )  # fmt: skip
    sizes = (
        Column(title="tokens", kind="count"),
        Column(title="heads", kind="count"),
        Column(title="head size", kind="count"),
    )
    return Table(
        title="Causal attention, forward", columns=(*sizes, Column(title="GFLOP/s", kind="number"), *BESIDE), rows=rows
    )


def _copies(told: Told) -> Table:
    rows = tuple(
        (each.copied_bytes, each.seconds, 2 * each.copied_bytes / each.seconds / 1e9) for each in told.kernels.copies
    )
    columns = (
        Column(title="copied", kind="bytes"),
        Column(title="measured", kind="seconds"),
        Column(title="GB/s", kind="number"),
    )
    return Table(title="Copies, each byte read and written", columns=columns, rows=rows)


def _links(told: Told) -> Table | None:
    """Of every size first the all-reduce, then the message."""
    if not told.messages:
        return None
    rows = []
    for each, guesses in zip(told.messages, links_s(told.messages, told.cluster, told.costs), strict=True):
        taken = (("all-reduce of 2", each.all_reduce_s), ("one way", each.send_s))
        for (what, seconds), guess in zip(taken, guesses, strict=True):
            rows.append((what, each.message_bytes, seconds, guess, guess / seconds - 1))
    columns = (Column(title="what"), Column(title="message", kind="bytes"), *BESIDE)
    return Table(title="Messages between two processes", columns=columns, rows=tuple(rows))


def _products_chart(told: Told, table: Table) -> Chart:
    marks = tuple(
        Mark(x=float(each.flops), y=each.flops / seconds / 1e9, label=f"{each.rows}x{each.outputs}x{each.inputs}", group=group)
        for group, place in (("measured", -3), ("predicted", -2))
        for each, row in zip(told.kernels.products, table.rows, strict=True)
        if isinstance(seconds := row[place], float)
    )  # fmt: skip
    return Chart(
        slug="products", title="Speed of matrix products", caption="Thin products (one short side) fall below thick ones.",
        x=Axis(title="FLOPs of the product", kind="number", log=True), y=Axis(title="GFLOP/s", kind="number", log=True),
        marks=marks,
    )  # fmt: skip


def _link_blocks(told: Told, table: Table | None) -> tuple[Block, ...]:
    if table is None:
        return (
            "Not measured: it takes two GPUs, and this machine has one. The links are those of the chosen cluster.",
        )
    marks = tuple(
        Mark(x=float(each.message_bytes), y=seconds, label="", group=f"{what}, {group}")
        for each, guesses in zip(told.messages, links_s(told.messages, told.cluster, told.costs), strict=True)
        for what, measured, guess in (
            ("all-reduce", each.all_reduce_s, guesses[0]),
            ("one way", each.send_s, guesses[1]),
        )
        for group, seconds in (("measured", measured), ("predicted", guess))
    )
    chart = Chart(
        slug="links", title="Messages between two processes", caption="Flat where latency rules, rising where bytes do.",
        x=Axis(title="message", kind="bytes", log=True), y=Axis(title="time", kind="seconds", log=True), marks=marks,
    )  # fmt: skip
    return table, chart


def _definitions(told: Told) -> tuple[str, ...]:
    wide = ELEMENT_BYTES[told.dtype] / COUNTED_BYTES
    said = [
        "Error = predicted / measured - 1. Measured: the median of repeats after a warm-up. FLOPs are 2 M N K of a product, and "
        "half the square of scores in causal attention.",
    ]
    if wide > 1:
        said.append(
            f"Kernels ran in {told.dtype}, whose times stand for bf16 and fp16 too. The cost model counts {COUNTED_BYTES} bytes "
            f"an element, so memory is taken as {wide:g} times slower where products are predicted here."
        )
    return tuple(said)
