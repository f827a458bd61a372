"""The table of all schedules: how each is made, what it refuses, what it advises against and how much it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pipesim.schedules import (
    auto,
    chimera,
    custom,
    dualpipe,
    dualpipev,
    eager_1f1b,
    gpipe,
    hanayo,
    interleaved_1f1b,
    interleaved_zb,
    looped_bfs,
    naive,
    one_f_one_b,
    one_f_one_b_v,
    seq1f1b,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zbv,
)
from pipesim.schedules.action import IntArray, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of schedule. Its functions take (p, m), or (p, m, v) if the number of stages per rank is free."""

    make: Callable[..., Schedule]
    peak_inflight: Callable[..., IntArray]
    """The memory law: the most activations each rank holds, shape (p,)."""
    broken_rules: Callable[..., Iterator[str]]
    unwise: Callable[..., Iterator[str]]
    v: int
    """Stages per rank; where ``free_v``, only what is taken if none is asked for."""
    free_v: bool
    split: bool
    """Backwards are split in I and W."""
    options: tuple[str, ...]
    aliases: tuple[str, ...]

    def sizes(self, p: int, m: int, v: int) -> tuple[int, ...]:
        return (p, m, v) if self.free_v else (p, m)


def _nothing(*_: int, **__: Any) -> Iterator[str]:
    return iter(())


def _family(
    module: ModuleType,
    make: Callable[..., Schedule],
    aliases: str,
    *,
    v: int = 1,
    free_v: bool = False,
    split: bool = False,
    options: tuple[str, ...] = (),
) -> Family:
    """A family from the file that has its ``peak_inflight`` and, where it needs them, ``broken_rules``, ``unwise``."""
    return Family(
        make=make,
        peak_inflight=module.peak_inflight,
        broken_rules=getattr(module, "broken_rules", _nothing),
        unwise=getattr(module, "unwise", _nothing),
        v=v,
        free_v=free_v,
        split=split,
        options=options,
        aliases=tuple(aliases.split()),
    )


_INTERLEAVED = "vpp interleaved interleave 1f1b_interleaved 1f1b_i megatron_interleaved virtual_pipeline"

FAMILIES: dict[str, Family] = {
    "naive": _family(naive, naive.naive, "serial sequential model_parallel"),
    "gpipe": _family(gpipe, gpipe.gpipe, "afab all_forward_all_backward fthenb"),
    "1f1b": _family(
        one_f_one_b,
        one_f_one_b.one_f_one_b,
        "pipedream_flush pipedream dapple one_f_one_b non_interleaved train_schedule",
    ),
    "eager_1f1b": _family(eager_1f1b, eager_1f1b.eager_1f1b, "eager 1f1b_eager"),
    "interleaved_1f1b": _family(
        interleaved_1f1b, interleaved_1f1b.interleaved_1f1b, _INTERLEAVED, v=2, free_v=True, options=("group",)
    ),
    "looped_bfs": _family(looped_bfs, looped_bfs.looped_bfs, "bfs breadth_first looped", v=2, free_v=True),
    "interleaved_zb": _family(
        interleaved_zb,
        interleaved_zb.interleaved_zb,
        "interleaved_zero_bubble zb_interleaved zb_vpp",
        v=2,
        free_v=True,
        split=True,
    ),
    "zb_h1": _family(zb_h1, zb_h1.zb_h1, "zb1p zb_1p zero_bubble zb h1", split=True),
    "zb_h2": _family(zb_h2, zb_h2.zb_h2, "zb2p zb_2p h2", split=True),
    "zbv": _family(zbv, zbv.zbv, "zb_v zbv_zero_bubble zero_bubble_v", v=2, split=True),
    "v_half": _family(v_half, v_half.v_half, "zbv_half", v=2, split=True),
    "v_min": _family(v_min, v_min.v_min, "zbv_min", v=2, split=True),
    "1f1b_v": _family(one_f_one_b_v, one_f_one_b_v.one_f_one_b_v, "v_1f1b", v=2),
    "dualpipe": _family(dualpipe, dualpipe.dualpipe, "dual", split=True),
    "dualpipev": _family(dualpipev, dualpipev.dualpipev, "cut_in_half dual_v", v=2, split=True),
    "chimera": _family(chimera, chimera.chimera, "bidirectional"),
    "hanayo": _family(hanayo, hanayo.hanayo, "wave waves", v=2, free_v=True),
    "seq1f1b": _family(seq1f1b, seq1f1b.seq1f1b, "sequence_1f1b", options=("segments",)),
    "auto": _family(auto, auto.auto, "automatic greedy search", free_v=True, split=True, options=auto.OPTIONS),
}

READ = _family(custom, custom.custom, "csv file own", free_v=True, options=("path",))
"""The one that is read from a file: it has no sizes of its own to be listed with."""

WAVES = ("zbv", "v_half", "v_min", "1f1b_v", "dualpipev", "hanayo")
"""Those whose stages run down the ranks and up again; the others' run down, again and again."""
