"""Random input for everything that reads: what comes out is a result, or an error that a user can read. No hang, no flood."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipesim import compose, config, errors, inputs, safe_config, study
from pipesim.calibrate.read_runs import read_runs
from pipesim.plan.asked.space import Space
from pipesim.results import schema, store
from pipesim.results.folder import StudyFolderError
from pipesim.schedules import custom, make_schedule
from pipesim.schedules.comms import lower

pytestmark = pytest.mark.slow
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def hydra():
    with compose.composer() as (make, loader):
        yield make, loader


@pytest.fixture(scope="module")
def base(hydra):
    return config.plain(hydra[0]([]))


KEYS = st.sampled_from(
    [
        "model",
        "model.name",
        "parallel.t",
        "parallel.partition",
        "training.recompute_layers",
        "cluster.peak_tflops",
        "demo",
        "schedule",
        "grid",
        "study.dir",
        "task",
        "model.moe",
        "model.mla.query_rank",
        "lang",
        "+x",
        "~model",
        "model@x",
        "++parallel.t",
        "hydra.verbose",
    ]
) | st.just("")
PIECES = [*"0123456789abcxyz.,:=[](){}'\"\\$~+-@/ \t*&!?#%é试", "${", "null", "true", "range(", "choice("]
SIGNS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
ODD = [
    "1_0",
    "0x10",
    "010",
    "1e400",
    "1:30",
    "no",
    "nan",
    "[1,[2,{a:3}]]",
    "${model}",
    "${parallel.t}",
    "${x}",
    "{a:{b:[]}}",
]
VALUES = SIGNS | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str) | st.sampled_from(ODD)
WORDS = st.builds(lambda key, value: f"{key}={value}", KEYS, VALUES) | st.text(max_size=30) | SIGNS


@settings(max_examples=60, suppress_health_check=SHARED)
@given(words=st.lists(WORDS, min_size=1, max_size=3))
@example(words=["parallel.t=${parallel.t}"])
@example(words=["model.name=${model.name}"])
@example(words=["parallel.p=9" + "9" * 400])
@example(words=["parallel.p=1" + "0" * 5000])
@example(words=["parallel.partition=" + "[" * 45 + "]" * 45])
def test_any_words_make_a_config_or_a_sentence(hydra, words):
    try:
        safe_config.refuse_unsafe(["--", *words])
        composed = hydra[0](compose.with_quoted_texts(compose.with_canonical_schedules(words)))
        config.refuse_unknown(composed)
        rows = study.evaluate([Space(base=config.plain(composed))])
        assert [row["status"] for row in rows if row["status"] == "failed"] == [], rows
        schema.table(rows)
    except Exception as error:
        assert errors.explain(error, words), repr(error)


CELLS = st.text(max_size=6) | st.sampled_from(
    [
        "0F0",
        "0B0",
        "1F0",
        "1B0",
        "0I0",
        "0W0",
        "0F1",
        "0B1",
        "(0F1;0B0)OVERLAP_F_B",
        "0SEND_F0",
        "1RECV_F0",
        "1SEND_B0",
        "0RECV_B0",
        "0UNSHARD",
        "0RESHARD",
        "0REDUCE_GRAD",
        "999999999F999999999",
        "0F999999999",
        "999999999F0",
        "-1F0",
        "0G0",
        "(",
        ";",
    ]
)
GRIDS = st.lists(st.lists(CELLS, max_size=6), max_size=4).map(lambda rows: "\n".join(map(",".join, rows)) + "\n")


def read_anything(content, path):
    """The custom schedule as a study reads it, and what is wrong with it."""
    path.write_bytes(content)
    try:
        schedule = custom.read_schedule(path)
    except (ValueError, OSError) as error:
        assert str(error)
        assert len(str(error)) < 20_000
    else:
        assert len(schedule) < 10_000
    assert all(map(str, custom.broken_rules(2, 2, 1, path=str(path))))


@settings(max_examples=150, suppress_health_check=SHARED)
@given(grid=GRIDS)
def test_any_cells_make_a_schedule_or_a_sentence(tmp_path, grid):
    read_anything(grid.encode("utf-8", "surrogatepass"), tmp_path / "own.csv")


@settings(max_examples=150, suppress_health_check=SHARED)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(["1f1b", "zbv", "dualpipev"]), lowered=st.booleans())
def test_a_damaged_schedule_is_one_or_gives_a_sentence(tmp_path, seed, name, lowered):
    schedule = make_schedule(name, p=2, m=4)
    text = (lower(schedule) if lowered else schedule).to_csv().encode()
    read_anything(damaged(text, random.Random(seed)), tmp_path / "own.csv")


@settings(max_examples=60, suppress_health_check=SHARED)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_schedule_or_give_a_sentence(tmp_path, content):
    read_anything(content, tmp_path / "own.csv")


HEAD = [
    "id",
    "model",
    "gpus",
    "t",
    "p",
    "d",
    "v",
    "micro_batch",
    "global_batch",
    "seq_length",
    "schedule",
    "step_time_s",
    "memory_gb",
]
RIGHT = ["a", "bloom_176b", "384", "4", "12", "8", "1", "2", "2048", "2048", "1f1b", "104.7", "60"]
CELL = st.sampled_from(
    [
        *RIGHT,
        *["0", "-1", "1e400", "1e300", "nan", "inf", "1_000", "٣", "0x10", "=1+1", "\x00", '"'],
        "",
        "1" + "0" * 400,
    ]
)
TABLES = st.builds(
    lambda head, rows: "\n".join(",".join(row) for row in [head, *rows]),
    st.just(HEAD) | st.lists(st.sampled_from(HEAD) | st.text(max_size=8), max_size=13),
    st.lists(st.lists(CELL, min_size=13, max_size=13) | st.lists(CELL | st.text(max_size=8), max_size=14), max_size=3),
)


def measure_anything(content, path, base):
    path.write_bytes(content)
    try:
        runs = read_runs(path, base)
    except Exception as error:
        assert errors.explain(error), repr(error)
    else:
        assert runs.runs


@settings(max_examples=30, suppress_health_check=SHARED)
@given(text=TABLES)
@example(text="\n".join([",".join(HEAD), ",".join(RIGHT)]))
@example(text=",".join(HEAD) + '\n"' + "a" * 200_000)
def test_any_table_is_measurements_or_gives_a_sentence(tmp_path, base, text):
    measure_anything(text.encode("utf-8", "surrogatepass"), tmp_path / "own.csv", base)


@settings(max_examples=60, suppress_health_check=SHARED)
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".csv.gz"]))
def test_any_bytes_are_measurements_or_give_a_sentence(tmp_path, base, content, suffix):
    measure_anything(content, tmp_path / f"own{suffix}", base)


PUBLISHED = Path(config.__file__).parent / "calibrate" / "data" / "dev.csv.gz"


@settings(max_examples=12, suppress_health_check=SHARED)
@given(seed=st.integers(0, 2**32), packed=st.booleans())
def test_a_damaged_published_table_is_one_or_gives_a_sentence(tmp_path, base, seed, packed):
    content = PUBLISHED.read_bytes() if packed else "\n".join(inputs.read_text(PUBLISHED).splitlines()[:6]).encode()
    measure_anything(damaged(content, random.Random(seed)), tmp_path / ("own.csv.gz" if packed else "own.csv"), base)


def damaged(content, rng):
    """With some bits turned, a piece cut out or doubled, or the end missing."""
    changed = bytearray(content)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    start = rng.randrange(len(changed))
    piece = changed[start : start + rng.randrange(1, 40)]
    kind = rng.randrange(4)
    if kind == 0:
        del changed[start : start + len(piece)]
    elif kind == 1:
        changed[start:start] = piece
    elif kind == 2:
        del changed[start:]
    return bytes(changed)


@pytest.fixture(scope="module")
def real(tmp_path_factory, hydra):
    folder = tmp_path_factory.mktemp("real")
    asked = [config.plain(hydra[0](["parallel.p=12", f"parallel.t={t}"])) for t in (4, 8)]
    store.write(schema.table(study.evaluate([Space(base=each) for each in asked])), folder)
    return {name: (folder / name).read_bytes() for name in (store.PARQUET, store.CSV)}


@settings(max_examples=300, suppress_health_check=SHARED)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_study_is_read_or_gives_a_sentence(tmp_path, real, seed):
    for name, read in ((store.PARQUET, store.read), (store.CSV, lambda folder: store.read_csv(folder).to_pylist())):
        (tmp_path / name).write_bytes(damaged(real[name], random.Random(seed)))
        try:
            rows = read(tmp_path)
        except StudyFolderError as error:
            assert str(error).startswith(f"{tmp_path / name} cannot be read: ")
            assert errors.explain(error)
        else:
            assert all(list(row) == list(schema.COLUMNS) for row in rows)
            assert len(rows) < 100


@settings(max_examples=60, suppress_health_check=SHARED)
@given(seed=st.integers(0, 2**32))
def test_a_study_whose_end_is_damaged_is_read_or_gives_a_sentence(tmp_path, real, seed):
    """The end of a parquet file says where everything is, and no checksum holds it."""
    content, rng = bytearray(real[store.PARQUET]), random.Random(seed)
    end = int.from_bytes(content[-8:-4], "little") + 8
    for _ in range(rng.randrange(1, 4)):
        content[rng.randrange(len(content) - end, len(content))] = rng.randrange(256)
    (tmp_path / store.PARQUET).write_bytes(content)
    try:
        store.read(tmp_path)
    except StudyFolderError as error:
        assert errors.explain(error)
