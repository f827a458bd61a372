"""The arrows of the design, read from the imports: who may know whom, and what a plain import loads."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pipesim"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
SCRIPTS = sorted((ROOT / "experiments").rglob("*.py"))
LONGEST_FILE = 400

DRAWN = {"schedules", "simulate.timeline"}

ALLOWED: dict[str, set[str]] = {
    "checks": set(),
    "stack_spec": {"checks"},
    "specs": {"checks", "stack_spec"},
    "cluster_parts": {"checks", "specs"},
    "inputs": set(),
    "safe_config": {"checks", "inputs"},
    "headroom": {"checks"},
    "schedules": {"inputs"},
    "simulate": {"schedules"},
    "costs": {"specs"},
    "legality": {"checks", "specs", "schedules", "costs"},
    "estimate": {"specs", "schedules", "simulate", "costs", "legality"},
    "results": {"inputs"},
    "engines": {"checks"},
    "launch": {"checks", "inputs", "specs", "spec_config", "schedules", "legality", "config"},
    "plan": {
        "checks", "specs", "schedules", "simulate", "costs", "estimate", "legality", "launch.rules", "launch.number_rules",
        "config", "point_id", "results.schema", "calibrate", "headroom",
    },
    "calibrate": {
        "checks", "inputs", "specs", "schedules", "costs", "legality", "estimate", "config", "results", "report.document",
        "report.formats", "report.words",
    },
    "tasks": {
        "checks", "inputs", "specs", "config", "errors", "costs", "legality", "estimate", "schedules", "simulate", "plan",
        "calibrate", "execute", "launch", "report", "results", "toy", "compose.typed", "point_id", "headroom",
    },
    "toy": DRAWN,
    "execute": {"schedules", "simulate", "toy"},
    "report": DRAWN | {"headroom", "simulate.beside", "simulate.causes", "simulate.memory", "simulate.kernel"},
    "demo_config": set(),
    "grid_config": set(),
    "spec_config": set(),
    "plan_config": set(),
    "task_config": {"plan_config"},
    "study_config": set(),
    "config": {
        "checks", "inputs", "safe_config", "specs", "cluster_parts", "schedules", "legality.megatron_layout", "demo_config",
        "grid_config", "spec_config", "study_config", "task_config",
    },
    "errors": {"checks", "config", "report.formats"},
    "point_id": set(),
    "swept": {"plan.asked.space", "point_id"},
    "expand": {"checks", "config", "errors", "plan.asked.axes", "plan.asked.space"},
    "compose": {
        "checks", "config", "errors", "safe_config", "specs", "schedules", "expand", "plan.asked.axes", "plan.asked.names",
        "plan.asked.space", "plan.keep",
    },
    "given": {"checks", "config", "cluster_parts", "schedules"},
    "progress": set(),
    "helping": set(),
    "next_steps": {"report.say", "report.command"},
    "tracking": {"checks", "errors"},
    "dry_run": {"checks", "plan.asked.space", "report.document"},
    "sweep_part": {"checks", "plan", "results", "tasks"},
    "sweeping": {"checks", "errors", "engines", "plan", "progress", "report.formats", "results", "sweep_part"},
    "demos": {"checks", "specs", "spec_config", "schedules", "simulate", "config", "plan", "report", "results", "execute", "toy"},
    "study": {
        "checks", "specs", "simulate", "config", "errors", "swept", "legality", "estimate", "plan", "report", "results", "demos",
        "tasks", "sweeping", "compose", "dry_run", "headroom", "safe_config",
        "fitting", "next_steps", "tracking", "calibrate.evidence",
    },
    "fitting": {"config", "legality", "estimate", "plan"},
    "comparing": {"checks", "config", "report", "results"},
    "api": {
        "checks", "specs", "schedules", "simulate", "legality", "estimate", "results", "config", "errors", "compose", "given",
        "study", "plan.asked.space", "plan.search.refine",
    },
    "__init__": {"api"},
    "hydra_plugins": {"checks", "specs", "compose", "expand", "study", "config", "errors"},
}  # fmt: skip
"""Part of pipesim -> the parts it may import besides itself. A dotted name allows that module, or name, alone."""

FLOORS: dict[str, tuple[str, ...]] = {
    "plan": ("asked keep partition", "rows", "grid", "explain search"),
    "report": (
        "document say command wrap", "formats", "words ranking charts", "provenance fit_tables memory_words timeline plots",
        "figures viewer sweep compare execute", "layout html paper markdown terminal",
    ),
    "tasks": ("calibrate execute explain goodput jitter launch partition plan profile read validate",),
}  # fmt: skip
"""The inside of a part of many files, from the ground up: what stands on a floor knows the floors below it, not its neighbours."""

KNOW_TORCH = {"execute", "toy"}

KNOW_HYDRA = {
    "safe_config", "config", "demo_config", "grid_config", "spec_config", "plan_config", "study_config", "task_config",
    "compose", "expand", "errors", "given",
    "hydra_plugins",
}  # fmt: skip


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Every imported module, and ``module.name`` for names imported from one; also those inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [start, node.module]))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[1]


def ours(path: Path) -> Iterator[str]:
    """What the file imports of pipesim, without that prefix."""
    return (name.removeprefix("pipesim.") for name in imports(path) if name.split(".")[0] == "pipesim")


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(files: Iterable[Path], wrong: Callable[[Path], object]) -> dict[str, object]:
    """The files in which something is wrong, and what."""
    return {named(path): found for path in files if (found := wrong(path))}


def test_every_part_has_its_arrows() -> None:
    assert {part(path) for path in FILES} == set(ALLOWED)
    assert all(name.split(".")[0] in ALLOWED for allowed in ALLOWED.values() for name in allowed)


def test_imports_follow_the_arrows() -> None:
    def forbidden(path: Path) -> list[str]:
        allowed = ALLOWED[part(path)] | {part(path)}
        return [name for name in ours(path) if not within(name, allowed)]

    assert offenders(FILES, forbidden) == {}


def test_arrows_form_no_circle() -> None:
    left = {name: {each.split(".")[0] for each in allowed} for name, allowed in ALLOWED.items()}
    while left:
        free = {name for name, needs in left.items() if not needs & left.keys()}
        assert free, f"these import each other: {sorted(left)}"
        left = {name: needs for name, needs in left.items() if name not in free}


@pytest.mark.parametrize("name", FLOORS)
def test_inside_a_part_only_lower_floors_are_known(name: str) -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS[name]) for room in rooms.split()}
    files = [
        path for path in (PACKAGE / name).rglob("*.py") if path.parent != PACKAGE / name or path.stem != "__init__"
    ]
    assert {room_of(path) for path in files} == set(floor)
    for path in files:
        known = {each.split(".")[1] for each in ours(path) if each.startswith(f"{name}.")} - {room_of(path)}
        assert [each for each in known & set(floor) if floor[each] >= floor[room_of(path)]] == [], named(path)


@pytest.mark.parametrize("name", ["checks.py", "specs.py", "schedules/action.py", "schedules/rules.py"])
def test_the_ground_floor_knows_nothing_of_the_house(name: str) -> None:
    assert [
        each for each in ours(PACKAGE / name) if each.split(".")[0] not in ("checks", "stack_spec", "schedules")
    ] == []


def test_reports_never_know_how_their_numbers_came_about() -> None:
    for path in (PACKAGE / "report").rglob("*.py"):
        assert {name.split(".")[0] for name in ours(path)} <= {"report", "simulate", "schedules", "headroom"}, named(
            path
        )


def test_hydra_stays_at_the_door() -> None:
    inside = [path for path in FILES if part(path) not in KNOW_HYDRA]
    assert offenders(inside, lambda path: roots(path) & {"hydra", "omegaconf"}) == {}


def test_torch_is_imported_only_where_models_really_run() -> None:
    def foreign(path: Path) -> set[str]:
        known = set() if path in SCRIPTS or part(path) not in KNOW_TORCH else {"torch", "safetensors"}
        return roots(path) & ({"torch", "safetensors", "torchvision", "tensorflow", "jax"} - known)

    assert offenders([*FILES, *SCRIPTS], foreign) == {}


def test_nothing_imports_the_experiments() -> None:
    assert offenders(FILES, lambda path: roots(path) & {"experiments", "run"}) == {}


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_experiments_are_thin() -> None:
    assert offenders(SCRIPTS, lambda path: lines(path) >= 60) == {}


def test_no_file_is_too_long_to_read() -> None:
    assert offenders(FILES, lambda path: lines(path) > LONGEST_FILE) == {}


def test_every_module_says_what_it_is_for() -> None:
    assert offenders(FILES, lambda path: not ast.get_docstring(tree(path))) == {}


def test_every_package_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in PACKAGE.rglob("__init__.py")}
    assert found - {"pipesim.hydra_plugins"} <= set(listed)


def test_a_plain_import_loads_nothing_heavy() -> None:
    code = "import sys, pipesim; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "PYTHONSTARTUP"},
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert {"pipesim", "numpy"} <= loaded
    heavy = {
        "ray",
        "dask",
        "distributed",
        "submitit",
        "torch",
        "plotly",
        "pandas",
        "matplotlib",
        "hydra",
        "omegaconf",
        "jinja2",
        "rich",
        "safetensors",
    }
    assert not loaded & heavy


def test_engines_are_imported_only_where_they_are_chosen() -> None:
    def foreign(path: Path) -> set[str]:
        of_its_own = path.stem.removeprefix("on_") if path.parent.name == "engines" else ""
        known = {"ray": {"ray"}, "dask": {"dask", "distributed"}, "submitit": {"submitit"}}.get(of_its_own, set())
        known = known | ({"mlflow"} if path.stem == "tracking" else set())
        return roots(path) & ({"ray", "dask", "distributed", "submitit", "mlflow"} - known)

    assert offenders([*FILES, *SCRIPTS], foreign) == {}
