"""The table of a study: one schema, one order, and the same content in parquet and CSV, bit for bit."""

import csv
import json
import math
import os
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipesim.results import schema, store
from pipesim.results.folder import StudyFolderError
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


TRICKY = (
    "a\rb", "a\nb", "a\r\nb", 'a"b', '"', '""', "a,b", " a ", "", " ", "试验", "=1+1", "\x00", "None", "NA", "NULL", "nan", "007",
    "1e3", "true", "\\", "\ufeff", "\t", "#", "\u2028", "😀",
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40)
@given(ROWS)
@example([{"rank_memory_bytes": [math.nan, math.inf, -math.inf, -0.0], "peak_inflight": [-(2**63)]}])
@example([{"mfu": 5e-324, "step_time_s": -0.0, "global_batch": 2**63 - 1}, {"mfu": 0.1 + 0.2, "step_time_s": math.nan}])
@example([{"mfu": 1.7976931348623157e308, "model": text, "peak_inflight": []} for text in TRICKY])
@example([{"peak_inflight": [None, 1], "rank_memory_bytes": [None]}, {}])
def test_csv_and_parquet_hold_the_same_bits(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("table")
    table = schema.table(rows)
    store.write(table, folder)
    asked = [{name: bits(row.get(name)) for name in COLUMNS} for row in table.to_pylist()]
    for found in (store.read(folder), store.read_csv(folder).to_pylist()):
        assert [{name: bits(value) for name, value in row.items()} for row in found] == asked
    assert [[cell or None for cell in line] for line in cells_of(folder)] == [
        [as_text(value) for value in row.values()] for row in table.to_pylist()
    ]


def cells_of(folder):
    """The lines of the CSV as Python's own reader has them."""
    with (folder / store.CSV).open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    assert header == list(COLUMNS)
    reals = [kind == pa.float64() for kind, _ in COLUMNS.values()]
    return [
        [repr(float(cell)) if real and cell else cell for cell, real in zip(row, reals, strict=True)] for row in rows
    ]


def as_text(value):
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list) else repr(value) if isinstance(value, float) else str(value)


def test_what_is_missing_is_told_from_what_is_empty_and_from_what_is_no_number(tmp_path):
    rows = [{"point_id": "0", "model": None}, {"point_id": "1", "model": "", "mfu": math.nan}]
    store.write(schema.table(rows), tmp_path)
    for table in (store.read_table(tmp_path / store.PARQUET), store.read_csv(tmp_path)):
        assert table["model"].to_pylist() == [None, ""]
        assert table["mfu"].is_null().to_pylist() == [True, False]


def test_cells_are_written_as_people_and_programs_read_them(tmp_path):
    rows = [{"model": "a", "t": 8, "mfu": 0.1, "fits": True, "peak_inflight": [4, 3], "stage_forward_s": [0.1, 1e-9]}]
    store.write(schema.table(rows), tmp_path)
    with (tmp_path / store.CSV).open(encoding="utf-8", newline="") as lines:
        (cells,) = csv.DictReader(lines)
    given_cells = {name: text for name, text in cells.items() if text}
    assert given_cells == {
        "model": "a", "t": "8", "mfu": "0.1", "fits": "true", "peak_inflight": "[4, 3]", "stage_forward_s": "[0.1, 1e-09]",
    }  # fmt: skip


def test_pandas_reads_the_same_numbers_from_both(tmp_path):
    rows = [{"model": "007", "t": t, "step_time_s": math.pi / t, "memory_bytes": 1e11 / t} for t in (1, 2, 3)]
    store.write(schema.table(rows), tmp_path)
    from_text = pd.read_csv(
        tmp_path / store.CSV, engine="python", keep_default_na=False, na_values=[""], dtype={"model": str}
    )
    from_parquet = pd.read_parquet(tmp_path / store.PARQUET)
    for name in ("model", "t", "step_time_s", "memory_bytes"):
        assert from_text[name].tolist() == from_parquet[name].tolist() == [row[name] for row in rows]


def test_polars_reads_the_same_from_both(tmp_path):
    polars = pytest.importorskip("polars")
    store.write(
        schema.table([{"model": text, "t": t, "mfu": math.pi / t} for t, text in enumerate(TRICKY, 1)]), tmp_path
    )
    from_parquet = polars.read_parquet(tmp_path / store.PARQUET)
    kinds = {"model": polars.String, "t": polars.Int64, "mfu": polars.Float64}
    from_text = polars.read_csv(tmp_path / store.CSV, columns=list(kinds), schema_overrides=kinds)
    assert from_text.rows() == from_parquet.select(list(kinds)).rows()
    assert from_parquet["model"].to_list() == sorted(TRICKY)


def test_duckdb_reads_the_same_from_both(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    texts = [text for text in TRICKY if "\r" not in text and text not in ("", "\x00")]
    store.write(
        schema.table([{"model": text, "t": t, "mfu": math.pi / t} for t, text in enumerate(texts, 1)]), tmp_path
    )
    asked = "select model, t, mfu from {} order by t"
    from_parquet = duckdb.sql(asked.format(f"'{tmp_path / store.PARQUET}'")).fetchall()
    reading = f"read_csv('{tmp_path / store.CSV}', types={{'model': 'VARCHAR', 't': 'BIGINT', 'mfu': 'DOUBLE'}})"
    assert duckdb.sql(asked.format(reading)).fetchall() == from_parquet
    assert [row[0] for row in from_parquet] == texts


@settings(max_examples=40)
@given(ROWS, st.randoms())
def test_the_table_does_not_depend_on_the_order_of_asking(rows, random):
    rows = [row | {"point_id": f"{index:016x}"} for index, row in enumerate(rows)]
    shuffled = random.sample(rows, len(rows))
    assert schema.table(shuffled).equals(schema.table(rows)) or "nan" in str(rows)


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


@pytest.mark.parametrize("content", [None, b"", b"PAR1 this is none", b"PAR1" + bytes(99) + b"PAR1"])
def test_a_damaged_table_is_said_to_be_one(tmp_path, content):
    if content is not None:
        (tmp_path / store.PARQUET).write_bytes(content)
    with pytest.raises(StudyFolderError, match=r"results\.parquet cannot be read"):
        store.read(tmp_path)


def test_a_folder_or_a_pipe_is_no_table(tmp_path):
    (tmp_path / store.PARQUET).mkdir()
    os.mkfifo(tmp_path / store.CSV)
    with pytest.raises(StudyFolderError, match=r"results\.parquet cannot be read: it is no file"):
        store.read(tmp_path)
    with pytest.raises(StudyFolderError, match=r"results\.csv cannot be read: it is no file"):
        store.read_csv(tmp_path)


def test_other_columns_are_named(tmp_path):
    table = schema.table([{"model": "a"}])
    pq.write_table(table.drop_columns(["mfu"]).append_column("speed", pa.array([1.0])), tmp_path / store.PARQUET)
    with pytest.raises(StudyFolderError, match="other columns than version 5 of the schema: mfu, speed"):
        store.read(tmp_path)


def test_a_column_of_another_type_is_named_and_not_converted(tmp_path):
    table = schema.table([{"model": "a", "t": 1}])
    for kind, value in ((pa.string(), "1"), (pa.float64(), 1.0), (pa.int32(), 1)):
        other = table.set_column(table.column_names.index("t"), "t", pa.array([value], kind))
        pq.write_table(other, tmp_path / store.PARQUET)
        with pytest.raises(StudyFolderError, match=f"column t holds {kind} and must hold int64"):
            store.read(tmp_path)


def stored(table, folder, version):
    about = None if version is None else {b"pipesim": json.dumps({"version": version}).encode()}
    pq.write_table(table.replace_schema_metadata(about), folder / store.PARQUET)


def test_a_table_of_before_there_were_versions_is_read_and_sorted_anew(tmp_path):
    rows = schema.table([{"model": "a", "zero": zero, "point_id": str(3 - zero)} for zero in (0, 1, 3)])
    stored(rows.take([2, 0, 1]), tmp_path, None)
    assert store.read_table(tmp_path / store.PARQUET).equals(rows)
    assert store.read_table(tmp_path / store.PARQUET, ["zero"])["zero"].to_pylist() == [3, 0, 1]


def test_a_newer_table_is_refused_by_its_version(tmp_path):
    stored(schema.table([{"model": "a"}]), tmp_path, schema.VERSION + 1)
    with pytest.raises(
        StudyFolderError, match=r"has version 6 of the schema and this pipesim knows 5: a newer one wrote it"
    ):
        store.read(tmp_path)


@pytest.mark.parametrize("version", ["2", None, True, 0, -1, 1.5, [2], {}])
def test_a_version_that_is_none_is_refused(tmp_path, version):
    about = {b"pipesim": json.dumps({"version": version}).encode()}
    pq.write_table(schema.table([{"model": "a"}]).replace_schema_metadata(about), tmp_path / store.PARQUET)
    with pytest.raises(StudyFolderError, match="says no version"):
        store.read(tmp_path)


def test_every_older_version_has_its_step():
    assert list(schema.UPGRADES) == list(range(1, schema.VERSION))
    assert all(step.__doc__ for step in schema.UPGRADES.values())


def test_the_file_says_its_version_and_units(tmp_path):
    store.write(schema.table([{"model": "a"}]), tmp_path)
    about = json.loads(pq.read_schema(tmp_path / store.PARQUET).metadata[b"pipesim"])
    assert about["version"] == schema.VERSION
    assert about["units"]["step_time_s"] == "s"
    assert about["units"]["tp_bytes_per_gpu"] == about["units"]["memory_bytes"] == "bytes"
    assert about["units"]["tokens_per_s_per_gpu"] == "tokens/s"
    assert "mfu" not in about["units"]
    assert all(name in about["units"] for name in COLUMNS if name.endswith(("_s", "_bytes")))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("t", 2**63), ("t", 1.0), ("t", True), ("t", "8"), ("t", math.nan), ("model", 7), ("model", math.nan), ("model", "\ud800"),
        ("mfu", "0.5"), ("mfu", True), ("mfu", {"a": 1}), ("fits", 1), ("peak_inflight", 3), ("peak_inflight", [[1]]),
        ("peak_inflight", ["1"]), ("mfu", 10**400),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_column(column, value):
    with pytest.raises(schema.WrongTable, match=f"column {column} "):
        schema.table([{column: None}, {column: value}])


def test_whole_numbers_beyond_64_bits_are_reals_where_the_schema_says_so():
    (row,) = schema.table([{"model_params": 2**70 + 1}]).to_pylist()
    assert row["model_params"] == 2.0**70


def test_numpys_numbers_are_numbers():
    (row,) = schema.table([{"t": np.int64(4), "mfu": np.float32(0.5), "fits": np.bool_(True)}]).to_pylist()
    assert (row["t"], row["mfu"], row["fits"]) == (4, 0.5, True)


def test_columns_that_hold_nothing_keep_their_types(tmp_path):
    for rows in ([], [{}], [{}, {}]):
        store.write(schema.table(rows), tmp_path)
        assert store.read_table(tmp_path / store.PARQUET).schema.equals(schema.SCHEMA)
        assert store.read_csv(tmp_path).schema.equals(schema.SCHEMA)


def test_some_columns_come_in_the_order_in_which_they_are_asked(tmp_path):
    store.write(schema.table([{"model": "a", "t": 2, "peak_inflight": [1]}]), tmp_path)
    found = store.read_table(tmp_path / store.PARQUET, ["t", "peak_inflight", "model"])
    assert found.to_pylist() == [{"t": 2, "peak_inflight": [1], "model": "a"}]


def parts(count, size):
    return [
        schema.table([{"model": "a", "t": k, "p": i, "mfu": 1 / (i + 1)} for i in range(size)]) for k in range(count)
    ]


def test_tables_that_are_appended_are_read_as_one(tmp_path):
    with store.Writer(tmp_path, csv=True) as writer:
        for part in parts(3, 5):
            writer.add(part)
    whole = pa.concat_tables(parts(3, 5))
    assert pq.ParquetFile(tmp_path / store.PARQUET).num_row_groups == 3
    assert store.read_table(tmp_path / store.PARQUET).equals(whole)
    assert store.read_csv(tmp_path).equals(whole)


def test_without_csv_there_is_none(tmp_path):
    with store.Writer(tmp_path, csv=False) as writer:
        writer.add(schema.table([{"t": 1}]))
    assert [path.name for path in tmp_path.iterdir()] == [store.PARQUET]


def test_what_is_not_finished_is_not_left(tmp_path):
    def interrupted():
        with store.Writer(tmp_path, csv=True) as writer:
            writer.add(schema.table([{"t": 1}]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_says_more_than_can_be_read_is_refused(tmp_path, monkeypatch):
    store.write(schema.table([{"t": 1}, {"t": 2}]), tmp_path)
    monkeypatch.setattr(store, "MOST_CELLS", 100)
    with pytest.raises(StudyFolderError, match="2 rows of 90 columns are 180 cells"):
        store.read(tmp_path)


def test_a_changed_byte_of_a_page_is_found(tmp_path):
    store.write(schema.table([{"model": "abcdefgh" * 9, "mfu": 0.1 * k} for k in range(99)]), tmp_path)
    path = tmp_path / store.PARQUET
    column = pq.ParquetFile(path).metadata.row_group(0).column(list(COLUMNS).index("mfu"))
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StudyFolderError, match="cannot be read"):
        store.read(tmp_path)


def test_sorting_columns_is_sorting_rows():
    rows = [
        {"model": m, "t": t, "sequence_parallel": s, "zero": z, "point_id": f"{m}{t}{s}{z}"}
        for m in ("é", "z", "Z", None) for t in (10, 9, None) for s in (True, False, None) for z in (3, 0)
    ]  # fmt: skip
    ordered = sorted(rows, key=lambda row: [(row.get(k) is not None, row.get(k) or 0) for k in schema.SORT_KEYS])
    wanted = [row["point_id"] for row in ordered]
    table = schema.table(rows)
    assert table["point_id"].to_pylist() == wanted
    assert schema.sorted_table(table) is table
    assert schema.sorted_table(table.take(list(range(71, -1, -1)))).equals(table)
