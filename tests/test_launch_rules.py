"""What frameworks can run: published rules, and columns of many points that say what each point says alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import composed, point

from pipesim import launch, legality
from pipesim.checks import Invalid
from pipesim.launch import rules
from pipesim.launch.number_rules import numbers_of

LLAMA = (
    "model=llama3_8b",
    "cluster=dgx_h100",
    "training=megatron",
    "cluster.gpus=1000000",
    "parallel=one_gpu",
    "parallel.d=2",
)
MIXTRAL = "model=mixtral_8x7b", *LLAMA[1:]


def refused(framework: str, *overrides: str, base: tuple[str, ...] = LLAMA, **changes: object) -> list[str]:
    at = legality.resolve(point(*base, f"stack={framework}", *overrides, **changes))
    return [each.removeprefix(f"stack.framework={framework}: ") for each in rules.problems(at)]


def test_megatron_wants_sequence_parallelism_where_experts_meet_tensor_parallelism() -> None:
    """core/transformer/moe/moe_layer.py raises in training."""
    (said,) = refused("megatron_lm", "parallel.t=2", base=MIXTRAL)
    assert said.startswith("parallel.t=2 with a mixture of experts needs parallel.sequence_parallel=true")
    assert refused("megatron_lm", "parallel.t=2", "parallel.sequence_parallel=true", base=MIXTRAL) == []
    assert refused("megatron_lm", "parallel.t=2") == []


def test_tensor_parallelism_divides_the_heads_of_keys_and_values() -> None:
    """core/transformer/transformer_config.py: num_query_groups must be a multiple of tensor_model_parallel_size."""
    assert refused("megatron_lm", "parallel.t=16") == [
        "parallel.t=16 does not divide model.kv_heads=8. Nearest: parallel.t=8."
    ]


@pytest.mark.parametrize(("m", "holds"), [(4, True), (8, True), (12, True), (6, False), (7, False), (2, False)])
def test_megatron_interleaves_multiples_of_p_not_of_p_times_v(m: int, holds: bool) -> None:
    """core/pipeline_parallel/schedules.py: the last group holds none or at least p. m = 4 at p = 4, v = 2 runs."""
    overrides = ("parallel.p=4", "parallel.v=2", "schedule=interleaved_1f1b", f"training.global_batch={2 * m}")
    assert (refused("megatron_lm", *overrides) == []) is holds


@pytest.mark.parametrize(("p", "m", "holds"), [(4, 10, True), (4, 3, True), (4, 6, True), (2, 5, False), (4, 9, False)])
def test_pytorch_interleaves_equal_rounds(p: int, m: int, holds: bool) -> None:
    """torch.distributed.pipelining: rounds = max(1, m // p), and they divide m."""
    overrides = (
        f"parallel.p={p}", "parallel.v=2", "schedule=interleaved_1f1b", f"training.global_batch={2 * m}", "parallel.zero=3",
        "training.recompute=full",
    )  # fmt: skip
    assert (refused("torchtitan", *overrides) == []) is holds


def test_deepspeed_refuses_zero_2_beside_a_pipeline_and_divides_bf16_states_at_any_stage() -> None:
    base = ("model=llama2_7b", *LLAMA[1:], "training.recompute=full")
    assert any(
        "parallel.zero=2 with a pipeline" in each
        for each in refused("megatron_deepspeed", "parallel.p=2", "parallel.zero=2", base=base)
    )
    assert any("bf16 optimizer divides" in each for each in refused("megatron_deepspeed", "parallel.zero=0", base=base))
    assert refused("megatron_deepspeed", "parallel.zero=0", "training.precision=fp16", base=base) == []


def test_torchtitan_replicates_without_sharding_only_alone() -> None:
    assert refused("torchtitan", "parallel.zero=0", "training.recompute=full") == []
    said = refused("torchtitan", "parallel.zero=0", "training.recompute=full", "parallel.c=2")
    assert any("takes no other parallelism than d" in each for each in said)


def test_megatron_exchanges_whole_heads_of_keys() -> None:
    assert refused("megatron_lm", "parallel.context=ulysses", "parallel.c=2") == []
    said = refused("megatron_lm", "parallel.context=ulysses", "parallel.c=16")
    assert any("does not divide model.kv_heads" in each and "Nearest: parallel.context=ring" in each for each in said)
    assert refused("megatron_lm", "parallel.context=ring", "parallel.c=16") == []


def test_every_framework_names_its_source_and_known_schedules() -> None:
    from pipesim import schedules

    for name, framework in rules.FRAMEWORKS.items():
        assert len(framework.source.split()) > 4, name
        assert all(schedules.canonical_name(each) == each for each in framework.schedules)


LOOKS = [
    ("megatron_lm", {"sequence_parallel": True}), ("megatron_lm", {"zero": 2}), ("megatron_lm", {"schedule": "interleaved_1f1b"}),
    ("megatron_lm", {"precision": "fp16", "context": "ulysses"}), ("megatron_deepspeed", {"zero": 1}), ("megatron_deepspeed", {}),
    ("torchtitan", {"zero": 3, "sequence_parallel": True, "schedule": "interleaved_1f1b", "recompute": "full"}),
    ("torchtitan", {"zero": 0, "recompute": "full"}), ("torchtitan", {"zero": 2, "shard": 4, "recompute": "none"}),
    ("nanotron", {"zero": 1, "recompute": "full"}), ("composer_fsdp", {"zero": 3, "recompute": "full"}),
]  # fmt: skip
SIZES = st.sampled_from([1, 2, 3, 4, 8])


@pytest.mark.parametrize(("stack", "changes"), LOOKS)
@settings(max_examples=20)
@given(data=st.data())
def test_columns_say_what_each_point_says(stack: str, changes: dict[str, object], data: st.DataObject) -> None:
    base = composed(*MIXTRAL, f"stack={stack}")
    like = point(*MIXTRAL, f"stack={stack}", **changes)
    drawn = []
    for _ in range(8):
        sizes = {key: data.draw(SIZES) for key in ("t", "p", "d", "c", "e", "v")}
        training = {
            "micro_batch": data.draw(SIZES),
            "global_batch": data.draw(st.sampled_from([24, 48, 96])),
            "seq_length": 4096,
        }
        drawn.append(
            dataclasses.replace(
                like,
                layout=dataclasses.replace(like.layout, **sizes),
                training=dataclasses.replace(like.training, **training),
            )
        )
    columns = {key: np.array([numbers_of(each)[key] for each in drawn]) for key in numbers_of(base)}
    assert rules.allowed(like, columns).tolist() == [rules.problems(each) == [] for each in drawn]


def test_megatron_names_the_context_first_where_sequences_exceed_it() -> None:
    """arguments.py asserts seq_length <= max_position_embeddings."""
    with pytest.raises(Invalid, match=r"Nearest: model\.context=16384, or training\.seq_length=8192\."):
        launch.write(legality.resolve(point(*LLAMA, "stack=megatron_lm", "training.seq_length=16384")))
