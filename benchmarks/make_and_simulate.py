"""Claim: p=64, m=1024 is made and simulated within 10 ms (1F1B), 25 ms (interleaved), 50 ms (zero bubble, DualPipe).

PyTorch's ``torch.distributed.pipelining`` runs beside it where torch is installed, at smaller sizes, for it takes a
minute at the full one: ``get_schedule_ops`` makes its order, ``_simulate_comms_compute`` simulates it in whole steps.
"""

from __future__ import annotations

import time

from timing import load, time_s

from pipesim.schedules import make_schedule
from pipesim.simulate import simulate

P, M = 64, 1024
LIMITS_MS = {
    "1f1b": 10, "interleaved_1f1b": 25, "zb_h1": 50, "zb_h2": 50, "zbv": 50, "interleaved_zb": 50, "dualpipe": 50,
    "dualpipev": 50,
}  # fmt: skip
PEER_SIZES = ((8, 32), (16, 128))


def ours() -> None:
    print(f"make and simulate, p={P}, m={M}; {load()}")
    for name, limit_ms in LIMITS_MS.items():
        made_ms = time_s(lambda: make_schedule(name, p=P, m=M), runs=10)[0] * 1e3  # noqa: B023
        best_ms, median_ms = (s * 1e3 for s in time_s(lambda: simulate(make_schedule(name, p=P, m=M)), runs=10))  # noqa: B023
        verdict = "met" if best_ms <= limit_ms else "missed"
        both = f"best {best_ms:5.1f} ms (made in {made_ms:.1f}), median {median_ms:5.1f} ms"
        print(f"{name:17} {both}, limit {limit_ms} ms, {verdict}")


def peer() -> None:
    try:
        import torch
        from torch.distributed.pipelining import _schedule_visualizer, schedules
    except ImportError:
        print("torch is not installed: PyTorch's pipelining is not timed beside it.")
        return
    print(f"interleaved 1F1B with 2 stages per rank, beside torch {torch.__version__}")
    for p, m in PEER_SIZES:
        start_s = time.perf_counter()
        order = dict(enumerate(_schedule_visualizer.get_schedule_ops("Interleaved1F1B", p, m, 2)))
        made_s, start_s = time.perf_counter() - start_s, time.perf_counter()
        comms = schedules._add_send_recv(order, lambda stage: stage % p, 2 * p)  # noqa: B023
        schedules._simulate_comms_compute(comms, lambda stage: stage % p, 2 * p)  # noqa: B023
        simulated_s = time.perf_counter() - start_s
        best_s, _ = time_s(lambda: simulate(make_schedule("interleaved_1f1b", p=p, m=m)), runs=10)  # noqa: B023
        print(
            f"p={p} m={m}: torch makes it in {made_s:.3f} s and simulates it in {simulated_s:.3f} s; "
            f"here both take {best_s * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    ours()
    peer()
