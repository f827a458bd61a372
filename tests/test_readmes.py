"""What the READMEs name is there: links, files, folders, the modules in a table of a folder, and every key of a stack."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipesim.spec_config import StackConf

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "conf", "experiments", "pipesim", "tests")
READMES = [ROOT / "README.md", *sorted(path for name in FOLDERS for path in (ROOT / name).rglob("README.md"))]
OURS = re.compile(rf"[\w/]*\w+\.py|(?:{'|'.join(FOLDERS)})/[\w./]*")
FREELY_NAMED = re.compile(r"[A-Z]{4}|/mine\.")
"""Placeholders, and the files that examples have a user write."""


def spoken(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def missing(readme: Path) -> Iterator[str]:
    text = readme.read_text(encoding="utf-8")
    places = (readme.parent, ROOT, ROOT / "pipesim", ROOT / "experiments", ROOT / "tests")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (readme.parent / link).exists():
            yield link
    for word in spoken(text):
        is_path = OURS.fullmatch(word) and not FREELY_NAMED.search(word)
        if is_path and not any((place / word).exists() for place in places):
            yield word
    for line in re.findall(r"^\| (`[^|]*/`) \|(.*)\|", text, flags=re.MULTILINE):
        yield from _missing_inside([readme.parent / folder for folder in spoken(line[0])], line[1])


def _missing_inside(folders: list[Path], told: str) -> Iterator[str]:
    """Modules that a row tells of its folder."""
    if all((folder / "__init__.py").exists() for folder in folders):
        for word in spoken(told):
            if re.fullmatch(r"[a-z_]+", word) and not any((folder / f"{word}.py").exists() for folder in folders):
                yield word


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_readme_names_is_there(readme: Path) -> None:
    assert list(missing(readme)) == []


def test_what_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "__init__.py").touch()
    (tmp_path / "sweep" / "answer.py").touch()
    text = "[a](gone/README.md) `gone.py` `conf/gone.yaml` `test_MODULE.py`\n\n| `sweep/` | `answer`, `gone` |\n"
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    assert list(missing(tmp_path / "README.md")) == ["gone/README.md", "gone.py", "conf/gone.yaml", "gone"]


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_python_in_a_readme_can_be_imported(readme: Path) -> None:
    for word in spoken(readme.read_text(encoding="utf-8")):
        if found := re.match(r"pipesim(?:\.[a-z_]\w*)+", word):
            pkgutil.resolve_name(found[0])


def test_the_readme_of_conf_tells_every_key_of_a_stack() -> None:
    told = set(spoken((ROOT / "conf" / "README.md").read_text(encoding="utf-8")))
    assert {field.name for field in dataclasses.fields(StackConf)} <= told
