"""Every engine gives the result of every task, outlives its workers, and says what it needs."""

import importlib.util
import os
import sys
import time

import pytest
from engine_work import die_always, die_once, square

from pipesim import config, engines
from pipesim.checks import Invalid

DEFAULTS = {
    "workers": 2, "address": None, "cpus_per_point": 1, "gpus_per_point": 0.0, "retries": 3, "cluster": "local", "partition": None,
    "timeout_min": 5,
}  # fmt: skip
SLOW = [
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.alone]) for name in ("processes", "ray", "dask", "submitit")
]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """``engine(name, work, tasks, **settings)``: all results in order."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))

    def run(name, work, tasks, **settings):
        for package in engines.ENGINES[name]:
            pytest.importorskip(package)
        return sorted(engines.run({"name": name, "folder": str(tmp_path)} | DEFAULTS | settings, work, tasks))

    return run


@pytest.mark.parametrize("name", ["inline", *SLOW])
def test_every_task_has_its_result(engine, name):
    assert engine(name, square, iter(range(20))) == [(number, number**2) for number in range(20)]


@pytest.mark.parametrize("name", SLOW)
def test_a_killed_worker_costs_no_result(engine, name, tmp_path):
    assert engine(name, die_once, [(str(tmp_path), number) for number in range(8)]) == [(n, n**2) for n in range(8)]
    assert (tmp_path / "died").exists()


@pytest.mark.alone
@pytest.mark.slow
def test_a_task_that_always_kills_its_worker_is_given_up(engine):
    with pytest.raises(engines.WorkerDied):
        engine("processes", die_always, [1], retries=1)


@pytest.mark.alone
@pytest.mark.slow
def test_closing_ends_the_processes_at_once():
    results = engines.run({"name": "processes", "folder": None} | DEFAULTS, time.sleep, [0.0, 60.0, 60.0])
    assert next(results) is None
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 1


@pytest.mark.alone
@pytest.mark.slow
def test_ray_goes_to_a_cluster_that_is_there(engine):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        assert engine("ray", square, [2], address=cluster.address, workers=None) == [(2, 4)]
        assert not ray.is_initialized()
    finally:
        cluster.shutdown()


@pytest.mark.alone
@pytest.mark.slow
def test_dask_goes_to_a_scheduler_that_is_there(engine):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        assert engine("dask", square, [2], address=cluster.scheduler_address, workers=None) == [(2, 4)]


@pytest.mark.parametrize("name", [name for name, needs in engines.ENGINES.items() if needs])
def test_an_engine_that_is_not_installed_says_how_to_install_it(monkeypatch, name):
    monkeypatch.delitem(sys.modules, f"pipesim.engines.on_{name}", raising=False)
    for package in engines.ENGINES[name]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Invalid, match=rf"engine={name} needs .*pip install 'pipesim\[{name}\]'"):
        engines.run({"name": name, "folder": None} | DEFAULTS, square, [1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "spark"}, "engine.name='spark' must be one of inline, processes, ray, dask, submitit"),
        ({"workers": 0}, r"engine.workers=0 must be at least 1. Nearest: 1"),
        ({"retries": -1}, "engine.retries=-1"),
        ({"address": "auto"}, "engine=inline has none. Nearest: engine=ray"),
        ({"name": "ray", "address": "auto", "workers": 2}, "engine.workers"),
        ({"name": "dask", "gpus_per_point": 1.0}, "hands out no GPUs"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(Invalid, match=words):
        engines.run(DEFAULTS | {"name": "inline", "folder": None} | settings, square, [1])


def test_every_engine_has_a_choice_of_its_name_and_its_extra():
    import tomllib

    assert {path.stem for path in (config.CONF_DIR / "engine").glob("*.yaml")} == set(engines.ENGINES)
    extras = tomllib.loads((config.CONF_DIR.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, needs in engines.ENGINES.items():
        assert {word.split(">")[0] for word in extras.get(name, [])} == set(needs)
        assert importlib.util.find_spec(f"pipesim.engines.on_{name}")
