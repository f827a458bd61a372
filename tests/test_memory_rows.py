"""What measured rows say about memory: recipes, partitions, and rows that contradict themselves."""

from __future__ import annotations

import pytest
from measured_rows import measured

from pipesim.calibrate.partitions import head_work, redistributed
from pipesim.calibrate.recipes import contradicts_its_stages
from pipesim.costs.parameters import total_parameters

STAGES = "GB as printed; memory per pipeline stage: {} (max taken)"
PADDLE = {
    "stack": "paddle", "hidden": "5120", "layers": "40", "heads": "40", "n_gpus": "8", "tp": "2", "pp": "4", "dp": "1",
    "seq_len": "2048", "micro_batch": "4", "global_batch": "1024",
}  # fmt: skip


@pytest.mark.parametrize(
    ("recompute", "memories", "contradicts"),
    [
        # 40 / 4 layers of 2 s b h bytes are 0.84 GB a micro-batch; without recomputation they would be about ten times that
        ("full", "35.84/34.71/32.8/32.04", False),
        ("full", "57.67/46.49/35.24/25.59", True),
        ("none", "57.67/46.49/35.24/25.59", False),
    ],
)
def test_stages_that_fall_as_without_recomputation_contradict_a_row_that_states_it(
    recompute: str, memories: str, contradicts: bool
) -> None:
    row = measured(**PADDLE, recompute=recompute, notes=STAGES.format(memories))
    assert row.point is not None
    assert contradicts_its_stages(row.point, row.cells["notes"]) == contradicts


@pytest.mark.parametrize(
    ("notes", "tied"),
    [
        ("tied embeddings; the printed value counts untied embeddings", True),
        ("untied embeddings (MHA)", False),
        ("", False),
    ],
)
def test_a_note_about_another_figure_unties_no_embedding(notes: str, tied: bool) -> None:
    row = measured(gated_mlp="true", notes=notes)
    assert row.point is not None
    assert row.point.model.tied_embeddings == tied


@pytest.mark.parametrize(
    ("source", "gradient_bytes"), [("one source", 4), ("ZeroBubble-2024", 2), ("VocabParallel-2024", 2)]
)
def test_sources_whose_launchers_ask_for_fp16_hold_gradients_of_two_bytes(source: str, gradient_bytes: int) -> None:
    row = measured(source_group=source)
    assert row.point is not None
    assert row.point.stack.gradient_bytes == gradient_bytes


def test_an_inferred_vocabulary_gives_way_to_the_sizes_that_a_source_prints() -> None:
    # Qi et al. 2024, table 3: 62 layers of 6144 are 28.3 billion parameters with 32,000 rows, 28.4 with 51,200
    shape = {"layers": "62", "hidden": "6144", "heads": "64", "ffn": "24576", "tp": "1", "pp": "32", "n_gpus": "32"}
    row = measured(source_group="ZeroBubble-2024", vocab="", inferred="vocab=51200", **shape)
    assert row.point is not None
    assert row.point.model.vocab == 32000
    assert round(total_parameters(row.point.model) / 1e9, 1) == 28.3
    for stated in (measured(source_group="ZeroBubble-2024"), measured(vocab="", inferred="vocab=51200")):
        assert stated.point is not None
        assert stated.point.model.vocab == 51200


def test_a_head_counts_as_the_layers_that_multiply_as_much() -> None:
    # Narayanan et al. 2021: 24 h^2 + 4 s h FLOPs of a layer forward, 2 h V of the head; biases count with the weights
    row = measured(hidden="3072", heads="24", ffn="12288", vocab="131072")
    assert row.point is not None
    assert head_work(row.point.model, 4096) == pytest.approx(131072 / (12 * 3072 + 2 * 4096), rel=1e-3)


@pytest.mark.parametrize("head", [0.4, 1.7, 3.5, 6.9])
@pytest.mark.parametrize(("layers", "stages"), [(32, 8), (48, 16), (64, 32)])
def test_redistributed_layers_make_the_longest_stage_as_short_as_giving_them_away_can(
    head: float, layers: int, stages: int
) -> None:
    parts = redistributed(layers, head, stages)
    held = [parts[0] - 1, *parts[1:-1], parts[-1] - 1]
    assert sum(held) == layers
    longest = max(*held[:-1], held[-1] + head)
    assert longest == min(max(-(-(layers - last) // (stages - 1)), last + head) for last in range(layers // stages + 1))
    assert held[:-1] == sorted(held[:-1])
    assert held[0] <= layers // stages + 1
