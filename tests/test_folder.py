"""A study's folder: named from anything, never in another's way, whole or not there at all."""

import errno
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipesim.results.folder import StudyFolderError, new_study, slug

NAMES = [
    "a b",
    'BLOOM "176B"',
    "试验",
    "a/b",
    "../up",
    "x" * 400,
    "试" * 400,
    "..",
    ".",
    ".hidden",
    "",
    "-rf",
    "a\\b",
    "a\nb",
    "\x00",
    "~",
    "CON:",
]


def write(root, name, chosen=None, text="content"):
    with new_study(root, name, chosen) as staging:
        staging.write("figures/a.svg", text)
        staging.write("manifest.json", text)
    return staging.final


@pytest.mark.parametrize("name", NAMES)
def test_a_study_may_have_any_name_and_stands_beside_the_others(tmp_path, name):
    final = write(tmp_path, name)
    assert final.parent == tmp_path
    assert list(tmp_path.iterdir()) == [final]
    assert not final.name.startswith((".", "-"))
    assert sorted(path.name for path in final.rglob("*")) == ["a.svg", "figures", "manifest.json"]


@given(st.text())
@example("𠀀" * 400)
def test_a_folder_name_is_one_visible_part_of_a_path_and_short(name):
    made = slug(name)
    assert Path(made).name == made
    assert made[0] not in ".-_"
    assert not any(sign.isspace() or sign in "/\\:*?\"'<>|\x00" for sign in made)
    assert len(f"{made}-100".encode()) <= 255
    assert slug(made) == made


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("bloom_176b-t4-p12", "bloom_176b-t4-p12"),
        ('BLOOM "176B"/试验', "BLOOM-176B-试验"),
        ("...", "study"),
        ("a  b", "a-b"),
    ],
)
def test_what_can_stay_of_a_name_stays(name, folder):
    assert slug(name) == folder


def test_studies_of_one_name_are_numbered(tmp_path):
    assert [write(tmp_path, "a b").name for _ in range(3)] == ["a-b", "a-b-2", "a-b-3"]


def test_a_file_of_that_name_is_in_nobodys_way(tmp_path):
    (tmp_path / "a").write_text("mine")
    assert write(tmp_path, "a").name == "a-2"
    assert (tmp_path / "a").read_text() == "mine"


def test_threads_at_once_get_a_folder_each(tmp_path):
    texts = [str(number) for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        finals = list(threads.map(lambda text: write(tmp_path, "same", text=text), texts))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["same", *(f"same-{n}" for n in range(2, 17))])
    assert [(final / "manifest.json").read_text() for final in finals] == texts


def test_processes_at_once_get_a_folder_each(tmp_path):
    code = """
import sys, pathlib
from pipesim.results.folder import new_study
root, text = pathlib.Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    with new_study(root, "same", None) as staging:
        staging.write("manifest.json", text)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "studies"), text], stdin=-1, stdout=-1, text=True)
        for text in ("one", "two")
    ]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
        assert process.returncode == 0
    studies = list((tmp_path / "studies").iterdir())
    assert sorted(path.name for path in studies) == sorted(["same", *(f"same-{n}" for n in range(2, 21))])
    texts = [(study / "manifest.json").read_text() for study in studies]
    assert (texts.count("one"), texts.count("two")) == (10, 10)


def test_a_chosen_folder_is_taken_as_it_is(tmp_path):
    assert write(tmp_path / "root", "name", str(tmp_path / "deep" / "er" / "a b")) == tmp_path / "deep" / "er" / "a b"
    assert not (tmp_path / "root").exists()


def test_a_chosen_folder_may_exist_and_be_empty(tmp_path):
    (tmp_path / "mine").mkdir()
    assert write(tmp_path, "name", str(tmp_path / "mine")) == tmp_path / "mine"
    assert (tmp_path / "mine" / "manifest.json").read_text() == "content"
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


def test_a_chosen_folder_is_relative_to_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write(tmp_path / "root", "name", "here") == tmp_path / "here"


def test_a_tilde_is_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write(tmp_path / "root", "name", "~/here") == tmp_path / "here"


def test_a_chosen_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(StudyFolderError, match="is not an empty folder"):
        write(tmp_path, "name", str(tmp_path / "mine"))
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "mine", tmp_path / "mine" / "notes"]


def test_of_two_studies_for_one_chosen_folder_the_later_is_refused_and_the_first_kept(tmp_path):
    chosen = str(tmp_path / "one")

    def late():
        with new_study(tmp_path, "name", chosen) as staging:
            staging.write("manifest.json", "late")
            write(tmp_path, "name", chosen, text="first")

    with pytest.raises(StudyFolderError, match=str(tmp_path)):
        late()
    assert (tmp_path / "one" / "manifest.json").read_text() == "first"
    assert list(tmp_path.iterdir()) == [tmp_path / "one"]


@pytest.mark.parametrize("chosen", ["file/study", "file/deep/study", "file", "x" * 400, "x" * 400 + "/study"])
def test_a_place_that_cannot_be_written_is_said_to_be_one(tmp_path, chosen):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StudyFolderError, match=r"study\.dir"):
        write(tmp_path, "name", str(tmp_path / chosen))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def stop(root, chosen, error):
    with new_study(root, "name", chosen) as staging:
        staging.write("report.md", "half")
        raise error


@pytest.mark.parametrize("chosen", [None, "study", "new/deep/study"])
def test_a_full_disk_leaves_nothing_and_is_said(tmp_path, chosen):
    root = tmp_path / "root"
    root.mkdir()
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StudyFolderError, match=r"No space left on device.*Nothing was kept"):
        stop(root, chosen and str(root / chosen), full)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError("a fault"), KeyboardInterrupt()])
def test_whatever_else_stops_a_study_leaves_nothing_either(tmp_path, error):
    with pytest.raises(type(error)):
        stop(tmp_path, None, error)
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_not_seen_before_it_is_whole(tmp_path):
    with new_study(tmp_path, "name", None) as staging:
        staging.write("manifest.json", "{}")
        assert staging.final is None
        assert [path for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    assert staging.final == tmp_path / "name"


def test_a_study_may_be_read_by_whom_the_umask_allows(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert stat.S_IMODE(write(tmp_path, "name").stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_text_is_written_as_it_is(tmp_path):
    final = write(tmp_path, "name", text="试验\n\r\n")
    assert (final / "manifest.json").read_bytes() == "试验\n\r\n".encode()
