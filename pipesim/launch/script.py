"""A launch script: bash arrays of flags under torchrun, with what differs between clusters left as variables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipesim.checks import divisors
from pipesim.launch.values import Values
from pipesim.specs import Point

RUN = {
    "--train-iters": 20,
    "--lr": "1.0e-4",
    "--min-lr": "1.0e-5",
    "--lr-warmup-iters": 2,
    "--eval-iters": 0,
    "--log-interval": 1,
}
"""What every run needs and no layout says: yours to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """``groups`` are arrays of flags by name: flag -> value, True for a switch."""

    title: str
    program: str
    home: str
    point: Point
    groups: Mapping[str, Mapping[str, Any]]
    notes: list[str]
    exports: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        nodes, per_node, left = nodes_of(self.point)
        notes = [*self.notes, *([left] if left else [])]
        start = how_to_start(nodes) if nodes > 1 else []
        head = commented([f"{self.title}: {name_of(self.point)}", *start, *(f"Note: {note}" for note in notes)])
        lines = ["#!/usr/bin/env bash", *head.splitlines(), "set -euo pipefail"]
        lines.append(f"{self.home}=${{{self.home}:-.}}  # its checkout")
        lines += [f"NNODES=${{NNODES:-{nodes}}}", f"GPUS_PER_NODE=${{GPUS_PER_NODE:-{per_node}}}"]
        lines += [
            "NODE_RANK=${NODE_RANK:-0}",
            "MASTER_ADDR=${MASTER_ADDR:-localhost}",
            "MASTER_PORT=${MASTER_PORT:-6000}",
        ]
        lines += [f"export {name}={value}" for name, value in self.exports.items()]
        for name, settings in {**self.groups, "RUN_ARGS": RUN}.items():
            lines += ["", f"{name}=(", *(f"    {_flag(flag, value)}" for flag, value in settings.items()), ")"]
        lines += ["", 'torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\']
        lines += ['    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \\']
        arrays = " ".join(f'"${{{name}[@]}}"' for name in (*self.groups, "RUN_ARGS"))
        return "\n".join([*lines, f'    "${self.home}/{self.program}" \\', f'    {arrays} "$@"']) + "\n"


def how_to_start(nodes: int) -> list[str]:
    return [
        f"Start it on every node k = 0 … {nodes - 1}: NODE_RANK=k MASTER_ADDR=FIRST_NODE bash THIS_FILE; under Slurm:",
        f"srun --nodes {nodes} --ntasks-per-node 1 bash -c 'MASTER_ADDR=$(scontrol show hostnames | head -n 1) "
        "NODE_RANK=$SLURM_NODEID bash THIS_FILE'",
    ]


def _flag(name: str, value: Any) -> str:
    return name if value is True or value == "" else f"{name} {shlex.quote(str(value))}"


def commented(lines: Sequence[str]) -> str:
    """Comments of bash, TOML and YAML, a line each whatever a name holds."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def name_of(point: Point) -> str:
    layout, training = point.layout, point.training
    degrees = {key: getattr(layout, key) for key in ("t", "p", "d", "c", "e", "v")}
    said = " ".join(f"{key}{size}" for key, size in degrees.items() if size != 1 or key in "tpd")
    return (
        f"{' '.join(point.model.name.split())}, {said}, micro-batch {training.micro_batch} of {training.global_batch}"
    )


def nodes_of(point: Point) -> tuple[int, int, str]:
    """Nodes, GPUs used on each (equally many), and a sentence where that leaves some of every node idle."""
    layout, full = point.layout, point.cluster.gpus_per_node
    used = layout.t * layout.p * layout.c * (layout.d or 1)
    per_node = max(each for each in divisors(used) if each <= full)
    idle = used > full and per_node < full
    return (
        used // per_node,
        per_node,
        f"{used} GPUs are not whole nodes of {full}: {per_node} of each are used." if idle else "",
    )


def vocabulary_flags(values: Values) -> dict[str, Any]:
    """Random data, so that the script runs as it is: NullTokenizer counts one token more than it is told."""
    vocab, t = values["model.vocab"], values["parallel.t"]
    multiple = next(each for each in (128, 64, 32, 16, 8, 4, 2, 1) if vocab % (each * t) == 0)
    return {
        "--mock-data": True, "--tokenizer-type": "NullTokenizer", "--vocab-size": vocab - 1,
        "--make-vocab-size-divisible-by": multiple,
    }  # fmt: skip


def pad_to(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
