"""Trackers: off by default, refused in words, and a local MLflow store that holds what a study says."""

import pytest
from test_study import asked, default, no_figures, run  # noqa: F401

from pipesim import errors, tracking
from pipesim.checks import Invalid

OFF = {"tracker": None, "tracker_uri": None}


def test_it_is_off_unless_it_is_chosen(asked):  # noqa: F811
    assert {key: value for key, value in asked()["study"].items() if key in OFF} == OFF
    tracking.check(OFF)
    tracking.log(OFF, {}, {}, {}, None)


def test_an_unknown_tracker_names_the_nearest():
    with pytest.raises(Invalid, match=r"study\.tracker=mflow .* Nearest: mlflow"):
        tracking.check({"tracker": "mflow", "tracker_uri": None})


def test_without_mlflow_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"pip install 'pipesim\[mlflow\]'"):
        tracking.check({"tracker": "mlflow", "tracker_uri": "file:///tmp/x"})


def test_without_an_address_it_asks_for_one(monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(Invalid, match=r"study\.tracker_uri=file:///PATH"):
        tracking.check({"tracker": "mlflow", "tracker_uri": None})


@pytest.mark.usefixtures("no_figures")
def test_a_tracker_that_refuses_is_said_after_the_study_is_written(asked, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(tracking, "check", lambda study: None)
    monkeypatch.setattr(tracking, "_mlflow", lambda *_: (_ for _ in ()).throw(OSError("no route to host")))
    secret = "http://me:secret@host"
    with pytest.raises(errors.FailedPoints, match="did not take it: no route to host"):
        run([asked(study={"dir": str(tmp_path / "study"), "tracker": "mlflow", "tracker_uri": secret})], [], False)
    assert capsys.readouterr().out.splitlines()[-1] == f"study: {tmp_path / 'study'}"
    assert not [path for path in (tmp_path / "study").rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("no_figures")
def test_a_local_store_holds_parameters_metrics_and_files(asked, tmp_path):  # noqa: F811
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    uri = f"file://{tmp_path / 'store'}"
    points = [
        asked(study={"dir": str(tmp_path / "study"), "tracker": "mlflow", "tracker_uri": uri}, parallel={"t": t})
        for t in (4, 5, 8)
    ]
    words = ["parallel.t=4,5,8", f"study.tracker_uri={uri}", "study.tracker=mlflow"]
    folder = run(points, words, True)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("pipesim").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["parallel.t"] == "4,5,8"
    assert (found.data.params["model"], found.data.params["t"]) == ("bloom_176b", "4")
    assert "study.tracker_uri" not in found.data.params
    metrics = found.data.metrics
    assert (metrics["points_ok"], metrics["points_invalid"]) == (2, 1)
    assert metrics["step_time_s"] == pytest.approx(105.95, rel=1e-3)
    files = {each.path for each in client.list_artifacts(found.info.run_id)}
    assert {"report.html", "results.parquet", "manifest.json"} <= files
    assert not [path for path in folder.rglob("*") if path.is_file() and b"tracker" in path.read_bytes()]
