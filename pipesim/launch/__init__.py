"""To the cluster and back: layouts as arguments of the training frameworks, and their arguments as layouts."""

from __future__ import annotations

import dataclasses

from pipesim.checks import Invalid, suggest
from pipesim.specs import Point

WRITERS = ("megatron_lm", "megatron_deepspeed", "torchtitan", "nanotron")


def write(point: Point) -> dict[str, str]:
    """The files that start a layout under its stack's framework: name -> text.

    Raises ``Invalid`` with everything that breaks the layout's rules, or the framework's, or that it has no word for.
    """
    from pipesim import legality
    from pipesim.launch import megatron, megatron_deepspeed, nanotron, rules, torchtitan

    name = point.stack.framework
    if name not in WRITERS:
        raise Invalid([f"stack.framework={name} has no arguments that are written.{suggest(str(name), WRITERS)}"])
    point = legality.resolve(point)
    if point.layout.p == 1:
        point = dataclasses.replace(point, schedule="1f1b", options=())
    problems = rules.problems(point)
    try:
        files = {}
        if name == "megatron_lm":
            files = {"megatron_lm.sh": megatron.write(point).text()}
        elif name == "megatron_deepspeed":
            script, config = megatron_deepspeed.write(point)
            files = {"megatron_deepspeed.sh": script.text(), megatron_deepspeed.CONFIG: config}
        elif name == "torchtitan":
            files = {"torchtitan.toml": torchtitan.write(point)}
        else:
            files = {"nanotron.yaml": nanotron.write(point)}
    except Invalid as error:
        problems += error.problems
    if problems:
        raise Invalid(problems)
    return files
