"""What the words of a measured row are taken to mean."""

from __future__ import annotations

import pytest
from measured_rows import catalog, measured

from pipesim.specs import Point

TITAN = {"stack": "torchtitan", "gpu": "H100-80G-SXM", "year": "2024", "zero_stage_or_fsdp": "FSDP2", "sp": "true"}


def read(**cells: str) -> Point:
    found = measured(**cells)
    assert found.point is not None, found.problem
    return found.point


def test_megatron_in_fp8_runs_transformer_engine_as_nemo_does() -> None:
    h100 = {"gpu": "H100-80G-SXM", "year": "2025"}
    assert read(**h100, precision="fp8").stack.name == "nemo"
    assert read(**h100).stack.name == "megatron_lm"


def test_a_framework_that_we_have_no_stack_for_is_none() -> None:
    found = measured(stack="nemo", gpu="H100-80G-SXM", notes="v24.11.1; JAX/XLA (MaxText/Paxml)")
    assert found.point is None
    assert "JAX is none that we know" in found.problem


def test_asynchronous_tensor_parallelism_hides_what_nemo_s_chunks_hide() -> None:
    plain = read(**TITAN).stack
    hidden = read(**TITAN, notes="Float8+AsyncTP+compile").stack
    assert (plain.tp_overlap, hidden.tp_overlap) == (0.0, catalog().stacks["nemo"].tp_overlap)
    assert read(**TITAN, notes="async TP; torch.compile").stack == hidden


def test_a_scale_for_each_row_gathers_in_16_bits_and_casts_twice() -> None:
    tensorwise, rowwise = (read(**TITAN, precision=f"fp8 {each}").stack for each in ("tensorwise", "rowwise"))
    assert (tensorwise.fp8_gathers, rowwise.fp8_gathers) == (True, False)
    assert rowwise.fp8_cast_bytes > tensorwise.fp8_cast_bytes


@pytest.mark.parametrize(("notes", "more"), [("eager; memory 67.0 GiB", True), ("eager/compile bf16", False)])
def test_without_a_compiler_norms_move_more(notes: str, more: bool) -> None:
    assert (read(**TITAN, notes=notes).stack.norm_bytes > catalog().stacks["torchtitan"].norm_bytes) is more


@pytest.mark.parametrize(
    ("cells", "micro_batch"),
    [
        ({"micro_batch": "", "inferred": "micro_batch=1"}, 8),  # 16 sequences of each data rank, in p = 2
        ({"micro_batch": "1"}, 1),
        ({"micro_batch": "", "inferred": "micro_batch=1", "pp": "1"}, 1),
        ({"micro_batch": "", "inferred": "micro_batch=1", "stack": "nemo"}, 1),
    ],
)
def test_torchtitan_cuts_a_batch_in_as_many_as_the_pipeline_has_ranks(cells: dict[str, str], micro_batch: int) -> None:
    assert read(**TITAN | cells).training.micro_batch == micro_batch


def test_under_less_power_the_clock_falls_with_its_cube_root() -> None:
    free, held = (read(**TITAN | {"gpu": f"H100-96G-SXM{each}"}).cluster for each in ("", "-350W (HBM2e 2.4TB/s)"))
    assert held.watts_per_gpu == 350
    assert held.peak_flops_per_s["bf16"] == pytest.approx(free.peak_flops_per_s["bf16"] / 2 ** (1 / 3))


@pytest.mark.parametrize(("ep", "e"), [("", 4), ("2", 2)])
def test_experts_that_nobody_counts_lie_on_as_many_ranks_as_there_are(ep: str, e: int) -> None:
    assert read(moe_experts="8", moe_topk="2", ep=ep).layout.e == e
