"""How a row was trained: its stack, kernels, precision and schedule, read from words and notes as sources write them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from pipesim.checks import suggest
from pipesim.schedules import canonical_name
from pipesim.specs import Point, SpreadVocab, StackSpec, Training

_STACKS = (  # a pattern of the row's stack and ZeRO columns in lower case, our stack
    (r"aleph", "aleph_alpha"),
    (r"megatron-deepspeed|megatron_deepspeed|deepspeed", "megatron_deepspeed"),
    (r"nanotron", "nanotron"),
    (r"composer", "composer_fsdp"),
    (r"paddle", "paddle"),
    (r"nemo", "nemo"),
    (r"torchtitan|fsdp2", "torchtitan"),
)

_SCHEDULES = (  # a pattern of the row's schedule, ours
    (r"zb-?2p|zb_h2|zb-h2", "zb_h2"),
    (r"zb-?1p|zb-?h1|zb_h1", "zb_h1"),
    (r"zb-?v|zbv", "zbv"),
    (r"v-?half", "v_half"),
    (r"v-?min", "v_min"),
    (r"dualpipev", "dualpipev"),
    (r"dualpipe", "dualpipe"),
    (r"interleaved zero|zb \(", "interleaved_zb"),
    (r"interleaved", "interleaved_1f1b"),
    (r"gpipe|all-forward", "gpipe"),
)


MEGATRON = ("megatron_lm", "megatron_deepspeed", "bigscience")
"""Stacks that drop out unless told otherwise, and whose gradients in fp16 are held and sent as they are: in DeepSpeed by ZeRO
stage 1, which hands each rank its shard (``zero/stage_1_and_2.py``), not by ``BF16_Optimizer``."""

ADDED_BYTES = 6.0
"""Moved for each parameter where a gradient is added to one of 16 bits: both read, their sum written."""

_FP16_SCRIPTS = re.compile(r"ZeroBubble|VocabParallel")
"""Sources that state no precision, but publish launchers that ask for fp16 (sail-sg on GitHub: ``pretrain_zero_bubble.sh``
and ``pretrain_gpt.sh``)."""


_ROWWISE = {"fp8_gathers": False, "fp8_cast_bytes": 8.0}
"""A scale for each row of what is multiplied: rows of the one product are columns of another, so that each operand is cast
twice, reading and writing 2 + 1 bytes, and read once more for the largest values of its columns; what is gathered stays in
16 bits, whose scales no rank knows alone. Source: torchao ``float8/config.py``, recipe "rowwise"."""

_EAGER = {"norm_bytes": 93.0}
"""Without a compiler each operation is a kernel: a norm moves 28 bytes (cast 6, square and mean 4, scale 8, cast 6, weight
4), two of them; a residual 6, two of them; positions 20 for queries and 5 for keys, in fp32."""


class Recipe(NamedTuple):
    stack: StackSpec
    training: Training
    schedule: str
    options: tuple[tuple[str, int | float | str], ...]
    zero: int
    spread_vocab: SpreadVocab


def recipe(cells: Mapping[str, str], stacks: Mapping[str, StackSpec]) -> Recipe:
    """What the row says, and what its stack does where it says nothing."""
    stack = stacks[stack_name(cells, stacks)]
    notes, said = cells["notes"], cells["schedule"].lower()
    precision = "fp16" if _FP16_SCRIPTS.search(cells["source_group"]) else _precision(cells["precision"])
    changes: dict[str, object] = {}
    if re.search(r"async ?tp", notes.lower()):
        changes["tp_overlap"] = stacks["nemo"].tp_overlap  # both send each chunk as its part of the product is done
    if "rowwise" in cells["precision"]:
        changes |= _ROWWISE
    if notes.startswith("eager;"):
        changes |= _EAGER
    if "RMS kernel" in notes:
        changes |= {"norm_bytes": 47.0, "norm_kept_bytes": min(stack.norm_kept_bytes, 6.0)}
    if stack.name in MEGATRON and precision == "fp16":
        changes |= {"gradient_bytes": 2, "reduce_bytes": 2, "reduces_whole": False}
        changes["accumulation_bytes"] = min(stack.accumulation_bytes, ADDED_BYTES)
    if "PURE" in cells["precision"]:
        changes |= {"reduce_bytes": 2, "gradient_bytes": 2}
    again, layers = _recompute(cells, stack.name)
    training = Training(
        micro_batch=_micro_batch(cells, stack.name),
        global_batch=int(float(cells["global_batch"])),
        seq_length=int(float(cells["seq_len"])),
        precision=precision,  # type: ignore[arg-type]
        recompute=again,  # type: ignore[arg-type]
        recompute_layers=layers,
        attention=_attention(cells, stack.name),  # type: ignore[arg-type]
        dropout="kernel = fused" in notes or stack.name in MEGATRON,
        optimizer_barrier="zb" not in said or "synchronous" in said,
    )
    return Recipe(
        stack=dataclasses.replace(stack, **changes),  # type: ignore[arg-type]
        training=training,
        schedule=_schedule(cells),
        options=(),
        zero=_zero(cells, stack.name),
        spread_vocab=_spread_vocab(said),
    )


def _spread_vocab(said: str) -> SpreadVocab:
    if "interlaced" in said:
        return "interlaced"
    if "vocabulary parallelism" in said:
        return "algorithm_1" if "alg 1" in said else "algorithm_2"
    return "none"


def contradicts_its_stages(point: Point, notes: str) -> bool:
    """The row says that all layers run again, but memory falls from one middle stage to the next by several times what
    such layers keep of the one micro-batch less in flight (2 s b h each): by what they keep without recomputation.
    """
    printed = re.search(r"memory per pipeline stage: ([\d./]+)", notes)
    if printed is None or point.training.recompute != "full":
        return False
    middle_gb = [float(each) for each in printed[1].split("/")[1:-1]]
    tokens = point.training.micro_batch * (point.training.seq_length or point.model.context)
    kept_gb = 2 * tokens * point.model.hidden * point.model.layers / point.layout.p / 1e9
    return any(before - after > 5 * kept_gb for before, after in itertools.pairwise(middle_gb))


def stack_name(cells: Mapping[str, str], stacks: Mapping[str, StackSpec]) -> str:
    """Which of ours the row's words mean; where they name none, Megatron-LM. Raises ``ValueError`` for one that is none.

    Early NeMo on A100 is taken for Megatron-LM: even later configs of its launcher for these models (NeMo-Framework-Launcher,
    conf/training/gpt3/5b.yaml and 175b.yaml) name the fused softmax and leave Transformer Engine and its overlap off.
    Megatron-LM in fp8 is taken for NeMo: it has fp8 from Transformer Engine alone, with the same kernels.
    """
    named, words = cells["stack"], f"{cells['stack']} {cells['zero_stage_or_fsdp']}".lower()
    patterns = {"megatron_lm": "megatron", **{name: pattern for pattern, name in _STACKS}}
    if named in stacks and named not in patterns:
        return named
    if named and not any(re.search(pattern, named.lower()) for pattern in patterns.values()):
        raise ValueError(f"stack={named} is none that we know.{suggest(named, stacks)}")
    if "deepspeed" in words and "JZ" in f"{cells['internode_net']} {cells['notes']}":
        return "megatron_deepspeed" if "LAUNCH_BLOCKING=0" in cells["notes"] else "bigscience"
    if "JAX/XLA" in cells["notes"]:
        raise ValueError("stack: JAX is none that we know")
    if "fp8" in cells["precision"] and re.search("megatron[-_]lm", words):
        return "nemo"
    if "nemo" in words and "A100" in cells["gpu"] and int(float(cells["year"] or 2024)) < 2024:
        return "megatron_lm"
    return next((name for pattern, name in _STACKS if re.search(pattern, words)), "megatron_lm")


def _micro_batch(cells: Mapping[str, str], stack: str) -> int:
    """As given; where torchtitan's was only inferred, what it does unless told: as many micro-batches as the pipeline has
    ranks. Source: torchtitan ``pipelining_utils.py``, 2024, ``pipeline_parallel_microbatches``.
    """
    given, p = int(float(cells["micro_batch"])), int(float(cells["pp"]))
    if stack != "torchtitan" or p == 1 or "micro_batch=" not in cells["inferred"]:
        return given
    others = int(float(cells["tp"])) * p * int(float(cells["cp"] or "1"))
    sequences, rest = divmod(int(float(cells["global_batch"])) * others, int(float(cells["n_gpus"])) * p)
    return given if rest or not sequences else sequences


def _precision(said: str) -> str:
    said = said.lower()
    return "fp8" if "fp8" in said else "fp16" if "fp16" in said else "bf16"


def _recompute(cells: Mapping[str, str], stack: str) -> tuple[str, int | None]:
    """vTrain's configs say that layers run again, but then its layers of 2048 wide would do 65 % of the peak with unfused
    attention and norms in it, their products alone over 90 %, where Megatron-LM's own table has 44 %.
    """
    said = cells["recompute"].lower()
    if "use_checkpoint=true" in cells["notes"]:
        return "none", None
    if "every 2nd" in said:
        return "full", -(-int(float(cells["layers"])) // (2 * int(float(cells["pp"]))))
    if found := re.search(r"full \(.*?(\d+) layers", said):
        return "full", int(found[1])
    if "op" in said or (said == "selective" and stack == "torchtitan"):
        return "operators", None
    return ("full" if "full" in said else "selective" if "selective" in said else "none"), None


def _attention(cells: Mapping[str, str], stack: str) -> str:
    """The kernel that is named, else what the stack had at its time; without flash no long sequence fits.

    Kernels for Hopper alone are of 2024 (Shah et al., "FlashAttention-3"; cuDNN 9).
    """
    if found := re.search(r"kernel = (\w+)", cells["notes"]):
        named = {"torch": "torch", "fused": "unfused", "flash_attention2": "flash"}
        return named.get(found[1], "flash1" if found[1].startswith("flash_attentionv1") else "flash")
    year, length = int(float(cells["year"] or 2024)), int(float(cells["seq_len"]))
    if stack == "nemo":
        return "flash3" if year >= 2024 else "flash"
    if stack in MEGATRON:
        return "flash" if length >= 4096 or (year >= 2024 and length >= 2048) else "unfused"
    if stack in ("composer_fsdp", "paddle"):
        return "flash1"
    return "flash"


def _zero(cells: Mapping[str, str], stack: str) -> int:
    said = cells["zero_stage_or_fsdp"].lower()
    if "zero-2" in said or "stage2" in said:
        return 2
    if "zero-3" in said or "fsdp" in said:
        return 3
    if "zero-1" in said or "stage1" in said or "distributed" in cells["optimizer"].lower():
        return 1
    if "zero-0" in said or "none" in said:
        return 0
    return 3 if stack in ("torchtitan", "composer_fsdp") else 0


def _schedule(cells: Mapping[str, str]) -> str:
    said = cells["schedule"].lower()
    if int(float(cells["pp"])) == 1:
        return "1f1b"
    exact = canonical_name(said)
    found = exact or next((name for pattern, name in _SCHEDULES if re.search(pattern, said)), None)
    if found and found != "1f1b":
        return found
    return "interleaved_1f1b" if cells["vpp"] and float(cells["vpp"]) > 1 else "1f1b"
