"""A sweep from what is asked to its study: parts, made on an engine and kept; their rows in one table; a report of the best."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipesim import engines, progress
from pipesim.checks import Invalid
from pipesim.errors import FAILED, STOPPED, Stopped
from pipesim.plan.asked.space import PART, PLAN_PART, Slice, Space, cut, total
from pipesim.plan.keep import Keeper
from pipesim.plan.search import layouts as search
from pipesim.plan.search.best import Wanted, thinned
from pipesim.plan.search.refine import refined
from pipesim.report.formats import clean
from pipesim.results import folder as folders
from pipesim.results import manifest, parts, schema, store
from pipesim.results.folder import Staging
from pipesim.results.kept_rows import Kept
from pipesim.results.parts import Made
from pipesim.sweep_part import Part, asked, make

MOST_WITH_DETAILS = 10_000
"""Points up to which a row says something of every rank and stage, if nobody says otherwise."""
MOST_IN_CSV = 1_000_000
"""Rows up to which there is a CSV beside the parquet file."""
FAILURES = "failures.log"
BEGUN = "begun.json"
"""What the study asks, and the command that began it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is asked. ``config`` is the first point's; ``runs`` is whether points really run, so that each is a part;
    ``wanted`` is what alone is kept of a plan. ``known`` are hashes of the spaces.
    """

    spaces: Sequence[Space]
    config: Mapping[str, Any]
    overrides: Sequence[str]
    runs: bool
    wanted: Wanted | None = None
    known: dict[int, str] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return total(self.spaces)

    @property
    def part(self) -> int:
        return 1 if self.runs else PLAN_PART if self.wanted is not None else PART

    @property
    def is_kept(self) -> bool:
        """Whether what is done is kept when it is stopped; one part alone is a study, or nothing."""
        return self.points > self.part or bool(self.config["fail_fast"])

    @property
    def details(self) -> bool:
        wanted: bool | None = self.config["study"]["details"]
        return self.points <= MOST_WITH_DETAILS and self.wanted is None if wanted is None else wanted

    def parts(self, folder: Path) -> Iterator[Part]:
        code, known = version(), self.known
        for number, start in enumerate(range(0, self.points, self.part)):
            slices = tuple(cut(self.spaces, start, start + self.part))
            if self.runs:
                slices = tuple(Slice(Space(base=each.space.config(each.start)), 0, 1) for each in slices)
                known = {}
            fail_fast = bool(self.config["fail_fast"])
            question = asked(slices, known)
            yield Part(number, slices, question, code, self.details, self.runs, fail_fast, str(folder), self.wanted)


@contextmanager
def opened(sweep: Sweep, root: Path, name: str) -> Iterator[Staging]:
    """The folder of the study: whole or not at all for a sweep of one part, else one that keeps what is done.

    Raises ``Stopped`` for Ctrl-C once something is kept.
    """
    chosen, resume = sweep.config["study"]["dir"], sweep.config["resume"]
    if not sweep.is_kept and (resume is None or not (_place(resume) / folders.UNFINISHED).exists()):
        with folders.new_study(root, name, chosen if resume is None else resume) as staging:
            yield staging
        return
    with folders.kept_study(root, name, chosen, resume) as staging:
        _agree(sweep, staging.unfinished / BEGUN)
        try:
            yield staging
        except (KeyboardInterrupt, engines.WorkerDied) as error:
            died, done = (
                isinstance(error, engines.WorkerDied),
                len([*(staging.unfinished / "parts").glob("[0-9]*.json")]),
            )
            if not done and not died:
                raise
            message = f"{error if died else 'stopped'}; {done} of {_count(sweep)} parts are kept."
            raise Stopped(message, staging.path if done else None, FAILED if died else STOPPED) from None


def made(sweep: Sweep, staging: Staging) -> list[Made]:
    """Every part, in order, once all of them are on the disk.

    Raises ``Stopped`` at the first failed point that comes back if ``fail_fast`` is asked; of its part its row is kept.
    """
    folder = staging.unfinished / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[int, Made] = {}
    left = []
    for part in sweep.parts(folder):
        done = parts.kept(folder, part.number, part.asked)
        if done is None or (done.code != part.code and not sweep.config["resume_anyway"]):
            left.append(part)
        else:
            found[part.number] = done
    engine = sweep.config["engine"]
    engine = {**engine, "folder": engine["folder"] or str(staging.unfinished / "submitit")}
    with progress.bar(sweep.points) as advance, closing(engines.run(engine, make, left)) as results:
        advance(len(found) * sweep.part)
        for each in results:
            found[each.number] = each
            advance(sweep.part)
            if each.counts.get("failed") and sweep.config["fail_fast"]:
                raise _first_failure(staging, each)
    return [found[number] for number in sorted(found)]


def together(sweep: Sweep, staging: Staging, done: Sequence[Made]) -> tuple[Kept, dict[str, Any]]:
    """Writes the study's table from its parts, and what failed; gives the rows of a report and what the manifest says."""
    folder, kept = staging.unfinished / "parts", Kept()
    evaluated = sum((Counter(each.counts) for each in done), Counter[str]())
    if not evaluated:
        raise Invalid(["grid.where leaves no combination. Nearest: leave a condition out."])
    keep = (sweep.config["grid"] or {}).get("keep")
    keeper = None if keep is None else Keeper(keep)
    wanted = sweep.config["study"]["csv"]
    few = keeper is not None or sweep.wanted is not None or evaluated.total() <= MOST_IN_CSV
    csv = few if wanted is None else wanted
    logs = []
    best: list[pa.Table] = []
    with store.Writer(staging.path, csv) as writer:
        for each in done:
            table, log = parts.read(folder, each.number)
            logs.append(log)
            if sweep.wanted is not None:
                best.append(table)
            elif keeper is None:
                writer.add(table)
                kept.add(table)
            else:
                keeper.add(table)
        if sweep.wanted is not None:
            table = refined(thinned(schema.sorted_table(pa.concat_tables(best)), sweep.wanted), sweep.config)
            writer.add(table)
            kept.add(table)
        if keeper is not None:
            writer.add(keeper.table())
            kept.add(keeper.table())
    if any(logs):
        staging.write(FAILURES, clean("".join(logs)))
    code = sorted({each.code for each in done})
    about = {"points": sweep.points, "counts": dict(sorted(kept.counts.items())), "details": sweep.details, "csv": csv}
    if keeper is not None:
        about |= {"evaluated": dict(sorted(evaluated.items())), "kept": keeper.told()}
    if sweep.wanted is not None:
        values = {key: search.occurring(sweep.spaces, key) for key in search.ALL}
        about |= {"searched": dict(sorted(evaluated.items())), "values": values}
    return kept, {**about, "code": code, "asked": identity(sweep)}


def told(about: Mapping[str, Any]) -> list[str]:
    """What a sweep leaves out, and how to have it."""
    left_out = []
    if not about["details"] and "searched" not in about:
        left_out.append(
            f"Above {MOST_WITH_DETAILS:,} points the columns that say something of every rank and stage are empty; "
            "study.details=true fills them."
        )
    if not about["csv"]:
        left_out.append(f"Above {MOST_IN_CSV:,} rows there is no {store.CSV}; study.csv=true writes it.")
    return left_out


def complete(sweep: Sweep) -> Path | None:
    """The folder that ``resume`` names if it is a whole study already. Raises ``Invalid`` if it asks something else."""
    chosen, resume = sweep.config["study"]["dir"], sweep.config["resume"]
    if resume == "" or (resume is not None and _place(resume).is_file()):
        raise Invalid([f"resume={resume} must be the folder of a study."])
    if None not in (chosen, resume) and _place(chosen) != _place(resume):
        raise Invalid([f"resume={resume} and study.dir={chosen} are two folders. Leave study.dir out."])
    if resume is None or not (_place(resume) / folders.MANIFEST).exists():
        return None
    _refuse_other(sweep, manifest.read(_place(resume)).get("asked", {}), resume)
    shutil.rmtree(_place(resume) / folders.UNFINISHED, ignore_errors=True)
    return _place(resume)


def begun(sweep: Sweep, staging: Staging) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Overrides and config for the manifest: those that the study was begun with."""
    if not (staging.unfinished / BEGUN).exists():
        return sweep.overrides, sweep.config
    before = json.loads((staging.unfinished / BEGUN).read_text(encoding="utf-8"))
    return before["overrides"], {**sweep.config, **before["config"]}


def identity(sweep: Sweep) -> dict[str, Any]:
    """What must be the same for a study to be gone on with."""
    spaces = hashlib.sha256()
    for each in sweep.spaces:
        spaces.update(asked([Slice(each, 0, len(each))], sweep.known).encode())
    names = ("numpy", "numba", "pyarrow")
    return {
        "points": sweep.points,
        "points in a part": sweep.part,
        "details": sweep.details,
        "overrides": [
            word for word in sweep.overrides if not word.startswith(("resume", "study.", "engine", "fail_fast"))
        ],
        "configs": spaces.hexdigest()[:32],
        "code of pipesim": version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def point_id(spaces: Sequence[Space]) -> str:
    """Of the one point of a study that really ran: as in a sweep of such."""
    (one,) = cut(spaces, 0, 1)
    return asked([Slice(Space(base=one.space.config(one.start)), 0, 1)], {})[:16]


def version() -> str:
    """A hash of this package's code and data: rows of one version are the same wherever they are made."""
    package, found = Path(__file__).parent, hashlib.sha256()
    for path in sorted(path for ending in ("*.py", "*.gz") for path in package.rglob(ending)):
        found.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _agree(sweep: Sweep, path: Path) -> None:
    """The first time says what is asked; later ones must ask the same."""
    begun = {
        "overrides": [word for word in sweep.overrides if not word.startswith("study.tracker")],
        "config": {
            "resume": None,
            "study": {**sweep.config["study"], "tracker": None, "tracker_uri": None},
            **{key: sweep.config[key] for key in ("engine", "resume_anyway", "fail_fast")},
        },
    }
    if path.exists():
        begun = json.loads(path.read_text(encoding="utf-8"))
        _refuse_other(sweep, begun["asked"], str(path.parents[1]))
    folders.replace(path, json.dumps({**begun, "asked": identity(sweep)}, ensure_ascii=False, indent=2))


def _place(folder: str) -> Path:
    return Path(folder).expanduser().absolute()


def _refuse_other(sweep: Sweep, before: Mapping[str, Any], study: str) -> None:
    now = json.loads(json.dumps(identity(sweep)))
    differs = [
        f"{key} ({_short(before.get(key))} there, {_short(now[key])} now)" for key in now if before.get(key) != now[key]
    ]
    if differs and not sweep.config["resume_anyway"]:
        raise Invalid(
            [
                f"resume={study} was begun with another question or version: {'; '.join(differs)}. Nearest: the command "
                "that began it, or resume_anyway=true, which keeps the parts that ask the same and makes the others anew."
            ]
        )


def _short(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _first_failure(staging: Staging, failed: Made) -> Exception:
    folder, kept = staging.unfinished / "parts", staging.unfinished / "failed"
    table, log = parts.read(folder, failed.number)
    table = table.filter(pc.equal(table["status"], "failed")).slice(0, 1)
    kept.mkdir(exist_ok=True)
    store.write(table, kept)
    (kept / FAILURES).write_text(clean(log), encoding="utf-8")
    parts.drop(folder, failed.number)
    (row,) = table.select(["point_id", "reason"]).to_pylist()
    message = f"fail_fast=true: point {row['point_id']} failed: {row['reason']}. Its row and traceback: {kept}"
    return Stopped(message, staging.path, FAILED)


def _count(sweep: Sweep) -> int:
    return math.ceil(sweep.points / sweep.part)
