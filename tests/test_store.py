"""The table of a study: one schema, one order, and the same content in parquet and CSV, bit for bit."""

import csv
import json
import math
import struct

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipesim.results import schema, store
from pipesim.results.schema import COLUMNS

INTS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats()
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)
STRATEGIES = {
    pa.string(): TEXTS,
    pa.int64(): INTS,
    pa.float64(): REALS,
    pa.bool_(): st.booleans(),
    pa.list_(pa.int64()): st.lists(INTS, max_size=3),
    pa.list_(pa.float64()): st.lists(REALS, max_size=3),
}
SOME = ("point_id", "reason", "case", "model", "t", "d", "sequence_parallel", "global_batch", "fits", "peak_inflight",
        "rank_memory_bytes", "step_time_s", "mfu", "verdict")  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | STRATEGIES[COLUMNS[name][0]] for name in SOME}), max_size=4
)


def bits(value):
    """A value that differs wherever a bit does: of floats also the sign of zero; all not-a-numbers are one."""
    if isinstance(value, list):
        return [bits(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value


def from_csv(text, kind):
    """What a cell of the CSV says, by the type that the schema declares."""
    if text == "":
        return None
    if pa.types.is_list(kind):
        return json.loads(text)
    if pa.types.is_boolean(kind):
        return {"True": True, "False": False}[text]
    return {pa.int64(): int, pa.float64(): float, pa.string(): str}[kind](text)


def read_csv(folder):
    with (folder / store.CSV).open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    return header, [
        {name: from_csv(cell, COLUMNS[name][0]) for name, cell in zip(header, row, strict=True)} for row in rows
    ]


@settings(max_examples=40)
@given(ROWS)
@example([{"rank_memory_bytes": [math.nan, math.inf, -math.inf, -0.0], "peak_inflight": [-(2**63)]}])
@example([{"mfu": 5e-324, "step_time_s": -0.0, "global_batch": 2**63 - 1}, {"mfu": 0.1 + 0.2, "step_time_s": math.nan}])
def test_csv_and_parquet_hold_the_same_bits(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("table")
    table = schema.table(rows)
    store.write(table, folder)
    header, from_text = read_csv(folder)
    from_parquet = store.read(folder)
    asked = [{name: bits(row.get(name)) for name in COLUMNS} for row in table.to_pylist()]
    assert header == list(COLUMNS)
    assert [{name: bits(value) for name, value in row.items()} for row in from_parquet] == asked
    assert [{name: bits(value) for name, value in row.items()} for row in from_text] == asked


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", " a ", "试验", "=1+1", "\x00"])
def test_any_text_survives_the_csv(tmp_path, text):
    store.write(schema.table([{"model": text}]), tmp_path)
    assert [row["model"] for row in read_csv(tmp_path)[1]] == [text]


def test_cells_are_written_as_people_and_programs_read_them(tmp_path):
    rows = [{"model": "a", "t": 8, "mfu": 0.1, "fits": True, "peak_inflight": [4, 3], "stage_forward_s": [0.1, 1e-9]}]
    store.write(schema.table(rows), tmp_path)
    with (tmp_path / store.CSV).open(encoding="utf-8", newline="") as lines:
        (cells,) = csv.DictReader(lines)
    given_cells = {name: text for name, text in cells.items() if text}
    assert given_cells == {
        "model": "a", "t": "8", "mfu": "0.1", "fits": "True", "peak_inflight": "[4, 3]", "stage_forward_s": "[0.1, 1e-09]",
    }  # fmt: skip


def test_pandas_reads_the_same_numbers_from_both(tmp_path):
    rows = [{"t": t, "step_time_s": math.pi / t, "memory_bytes": 1e11 / t} for t in (1, 2, 3)]
    store.write(schema.table(rows), tmp_path)
    from_text = pd.read_csv(tmp_path / store.CSV, engine="python")
    from_parquet = pd.read_parquet(tmp_path / store.PARQUET)
    for name in ("t", "step_time_s", "memory_bytes"):
        assert from_text[name].tolist() == from_parquet[name].tolist() == [row[name] for row in rows]


@settings(max_examples=40)
@given(ROWS, st.randoms())
def test_the_table_does_not_depend_on_the_order_of_asking(rows, random):
    rows = [row | {"point_id": f"{index:016x}"} for index, row in enumerate(rows)]
    shuffled = random.sample(rows, len(rows))
    assert store.to_csv(schema.table(shuffled)) == store.to_csv(schema.table(rows))


def test_the_same_table_gives_the_same_bytes(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        store.write(schema.table([{"model": "a", "mfu": 0.5, "peak_inflight": [2, 1]}]), folder)
    one, two = ([(folder / name).read_bytes() for name in (store.PARQUET, store.CSV)] for folder in folders)
    assert one == two


def test_rows_are_sorted_by_number_and_not_by_digit():
    layouts = [(t, p) for p in (24, 6, 12) for t in (8, 16, 1)]
    table = schema.table([{"t": t, "p": p, "point_id": f"{t}-{p}"} for t, p in layouts])
    assert [(row["t"], row["p"]) for row in table.to_pylist()] == sorted(layouts)


def test_rows_are_sorted_by_model_before_layout_and_what_is_missing_stands_first():
    rows = [{"model": "b", "t": 1}, {"model": "a", "t": 2}, {"model": "a", "t": None}, {"model": None, "t": 9}]
    assert [(row["model"], row["t"]) for row in schema.table(rows).to_pylist()] == [
        (None, 9),
        ("a", None),
        ("a", 2),
        ("b", 1),
    ]


def test_every_row_has_every_column_in_the_declared_order():
    (row,) = schema.table([{"mfu": 0.5, "point_id": "0"}]).to_pylist()
    assert list(row) == list(COLUMNS)
    assert {name for name, value in row.items() if value is not None} == {"mfu", "point_id"}


def test_the_columns_that_others_rely_on_are_there():
    promised = """point_id status reason model cluster gpus t p d c e v schedule zero recompute sequence_parallel micro_batch
        global_batch num_microbatches params_per_gpu model_state_bytes activation_bytes memory_bytes memory_limit_bytes fits
        peak_inflight bubble_fraction bubble_overhead makespan_s dp_bytes_per_gpu tp_bytes_per_gpu pp_bytes_per_gpu dp_exposed_s
        step_time_s step_time_lo_s step_time_hi_s tokens_per_s tokens_per_s_per_gpu model_tflops_per_gpu mfu hfu verdict"""
    assert set(promised.split()) <= set(COLUMNS)


def test_a_column_that_the_schema_lacks_is_our_mistake():
    with pytest.raises(AssertionError, match="speed"):
        schema.table([{"speed": 1.0}])


def test_a_frame_keeps_whole_numbers_whole_where_some_are_missing():
    frame = schema.frame([{"t": 1, "d": None, "fits": None}, {"t": 2, "d": 3, "fits": True}])
    assert frame["d"].dtype == pd.Int64Dtype()
    assert frame["fits"].dtype == pd.BooleanDtype()
    assert frame["d"].isna().tolist() == [True, False]
    assert frame["d"].iloc[1] == 3
    assert list(frame.columns) == list(COLUMNS)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 this is none"])
def test_a_damaged_table_is_said_to_be_one(tmp_path, content):
    if content is not None:
        (tmp_path / store.PARQUET).write_bytes(content)
    with pytest.raises(ValueError, match=r"results\.parquet cannot be read"):
        store.read(tmp_path)


def test_a_table_of_another_version_is_refused_by_its_columns(tmp_path):
    table = schema.table([{"model": "a"}])
    pq.write_table(table.drop_columns(["mfu"]).append_column("speed", pa.array([1.0])), tmp_path / store.PARQUET)
    with pytest.raises(ValueError, match="mfu, speed"):
        store.read(tmp_path)
