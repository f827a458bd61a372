"""What a run says at its end: which files there are, and two or three commands to try next."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim.report import command
from pipesim.report.say import Lang, Say, speaker

FILES: dict[str, tuple[str, str]] = {
    "report.html": ("for the browser", "用浏览器打开"),
    "report.md": ("for terminals and pull requests", "终端与合并请求用"),
    "results.csv": ("the table, as text", "表格，文本"),
    "results.parquet": ("the table, with types and units", "表格，带类型与单位"),
    "measured.csv": ("what was measured", "实测值"),
    "timeline.html": ("the timeline, to move in", "可缩放的时间线"),
    "trace.json": ("the timeline, for ui.perfetto.dev", "时间线，用 ui.perfetto.dev 打开"),
    "predictions.parquet": ("every measured row beside what is predicted of it", "每条实测与其预测"),
    "figures.json": ("errors by source, as numbers", "各来源的误差，数值"),
    "runs.csv": ("each run, measured, before and after the fit", "每次运行：实测、拟合前后"),
    "schedule.csv": ("the order of actions, as PyTorch reads it", "动作次序，PyTorch 可读"),
}
"""Files worth opening and what each is, in English and Chinese."""

BLOOMS = {"parallel": "bloom", "training": "bloom", "stack": "bigscience"}
"""Groups whose default suits BLOOM alone."""

ON_A_LAYOUT = {
    "explain": "why it takes so long, and what would help",
    "partition": "which layers go to which stage",
    "launch": "the arguments that start it",
    "goodput": "how much of it failures and checkpoints leave",
    "jitter": "what uneven work and slow ranks cost it",
    "plan": "the best of all layouts for it",
}
"""Tasks that take the words of a layout, and what each tells."""

AFTER = {
    "explain": ("launch", "partition", "goodput"), "partition": ("explain", "launch"), "launch": ("goodput", "explain"),
    "goodput": ("jitter", "launch"), "jitter": ("goodput", "explain"), "read": ("plan", "explain"),
    "calibrate": ("plan", "explain"), "profile": (),
}  # fmt: skip
"""What is worth asking next with the same words."""

MOST = 3
"""Commands that are told; the first matter most."""

_OWN = ("study.", "resume", "engine", "fail_fast", "lang=")
"""Words of a command that say where and how, but not what."""

_COLUMNS = {
    **{f"parallel.{name}": name for name in ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")},
    **{f"training.{name}": name for name in ("micro_batch", "global_batch", "seq_length", "recompute", "precision", "attention")},
    **{name: name for name in ("model", "cluster", "stack", "schedule", "costs")},
}  # fmt: skip
"""What can be swept and has a column: key -> column."""


RUN = "experiments/run.py"


def lines(
    about: Mapping[str, Any], best: Mapping[str, Any] | None, folder: Path, language: Lang, read: Sequence[str] = ()
) -> list[str]:
    """``best`` is the row of a layout, or of the best of a sweep that fits; ``read`` the words that ask for what was read."""
    say = speaker(language)
    there = [(name, say(*words)) for name, words in FILES.items() if (folder / name).is_file()]
    wide = max((len(name) for name, _ in there), default=0)
    tried = commands(about, best, folder, say, read)
    return [
        *_unchosen(about, say),
        say("Written", "写入的文件"),
        *(f"  {name:<{wide}}  {words}" for name, words in there),
        "",
        say("Try next", "接着可以试"),
        *(line for words, command in tried for line in (f"  {words}", f"    {command}")),
        "",
    ]


def _unchosen(about: Mapping[str, Any], say: Say) -> list[str]:
    """Which groups were left to be BLOOM's, by somebody who asks for another model."""
    words = [word.partition("=")[0] for word in about["overrides"]]
    left = [f"{group}={name}" for group, name in BLOOMS.items() if group not in words]
    if "model" not in words or about["kind"] not in ("layout", "sweep", "plan") or not left or {*words} & {"grid"}:
        return []
    nearest = " ".join(f"{group}=megatron{'_lm' * (group == 'stack')}" for group in BLOOMS if group not in words)
    return [
        say(
            f"Not chosen, so as BLOOM was trained in 2022: {', '.join(left)}. A recipe of today: {nearest}.",
            f"未选择的各组沿用 BLOOM 2022 年的训练设置：{', '.join(left)}。当今的配方：{nearest}。",
        ),
        "",
    ]


def commands(
    about: Mapping[str, Any], best: Mapping[str, Any] | None, folder: Path, say: Say, read: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """(what it is for, the command) of two or three things to do after this study."""
    found = itertools.islice(_commands(about, best, folder, say, read), MOST)
    own = about.get("own_configs", [])
    return [(why, shlex.join(["python", *_with_own(typed, own)])) for why, typed in found]


def _with_own(typed: Sequence[str], own: Sequence[str]) -> list[str]:
    """Words that find the user's own configs, which those of a study's ``conf/`` name themselves."""
    program, *words = typed
    there = program != RUN or "--config-dir" in words or words == ["--help"]
    return [program, *([] if there else own), *words]


def _after_task(
    about: Mapping[str, Any], name: str, folder: Path, read: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Other tasks with the same words, of those that have an answer: a framework to write for, stages to divide."""
    config = about["config"]
    answered = {"launch": config["stack"]["framework"] is not None, "partition": config["parallel"]["p"] > 1}
    asked = [word for word in about["overrides"] if not word.startswith((*_OWN, "experiment=", "task=", "task."))]
    flags: list[str] = []
    if read:
        flags, asked = ["--config-dir", _near(folder / "conf")], list(read)
        yield "the same, with every table of a layout", _run([*flags, *asked])
    if fitted := _fitted(folder, config["task"][name]["name"]) if name in ("calibrate", "profile") else []:
        groups = tuple(f"{word.partition('=')[0]}=" for word in fitted)
        kept = [word for word in asked if not word.startswith(("measurements=", *groups))]
        flags, asked = ["--config-dir", _near(folder / "conf")], [*kept, *fitted]
        yield "a layout with what was fitted", _run([*flags, *asked])
    for task in AFTER[name]:
        if answered.get(task, True):
            yield ON_A_LAYOUT[task], _run([*flags, f"experiment={task}", *asked])


def _fitted(folder: Path, name: str) -> list[str]:
    """The words that choose the constants that a calibration or a profile wrote under this name."""
    return [f"{path.parent.name}={name}" for path in sorted((folder / "conf").glob(f"*/{name}.yaml"))]


def _commands(
    about: Mapping[str, Any], best: Mapping[str, Any] | None, folder: Path, say: Say, read: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """What it is for, and what is typed behind ``python``."""
    asked = [word for word in about["overrides"] if not word.startswith(_OWN)]
    tasks = about["config"]["task"] if about["kind"] == "task" else {}
    task = next((name for name, conf in tasks.items() if conf is not None), "")
    if task in AFTER:
        yield from _after_task(about, task, folder, read)
    elif about["kind"] == "layout" and best is not None:
        if not any(word.startswith(("experiment=", "grid=")) for word in asked):
            yield (
                say("why it takes so long, and what would help", "为什么要这么久，怎样会更快"),
                _run(["experiment=explain", *asked]),
            )
        others = [word for word in asked if not word.startswith(("parallel.t=", "parallel.p=", "parallel.d="))]
        degrees = sorted({max(1, best["p"] // 2), best["p"], 2 * best["p"]})
        yield (
            say("other ways to cut it, ranked", "其他切法，按快慢排列"),
            _run(["-m", *others, "parallel.t=1,2,4,8", f"parallel.p={','.join(map(str, degrees))}"]),
        )
        yield (
            say("other schedules", "其他调度"),
            _run(["-m", *(w for w in asked if not w.startswith("schedule")), "schedule=1f1b,vpp,zbv"]),
        )
    elif about["kind"] == "plan":
        if best is not None:
            typed = command.words(best, about["config"], about["overrides"])
            framework = about["config"]["stack"]["framework"]
            yield "why the best takes so long", _run(["experiment=explain", *typed])
            if framework is None:
                yield "the best, item by item", _run(typed)
            else:
                yield f"the best as arguments of {framework}", _run(["experiment=launch", *typed])
        yield "compared with another study", _beside_another(folder)
    elif about["kind"] == "sweep":
        if best is not None and (alone := _alone(asked, best)) is not None:
            yield say("the best of them, item by item", "其中最好的一个，逐项列出"), _run(alone)
        yield (
            say("compared with another study", "与另一项研究比较"),
            _beside_another(folder),
        )
    elif (folder / "measured.csv").exists():
        yield (
            say("the same again, to see how far runs lie apart", "再运行一次，看各次相差多少"),
            _run([*(["-m"] if about["kind"] == "runs" else []), *asked]),
        )
        yield say("and both compared", "再比较两者"), _beside_another(folder)
    else:
        if about["kind"] == "demo":
            yield say("all demos", "全部演示"), _run(["demo=all", *say("", "lang=zh").split()])
        yield say("one real layout", "一个真实的布局"), _run([])
    yield say("every group, with examples", "全部选项与例子"), _run(["--help"])


def _alone(asked: Sequence[str], best: Mapping[str, Any]) -> list[str] | None:
    """The words that ask for one layout of a sweep alone; ``None`` where its axes have no column, as those of a grid."""
    words = []
    for word in asked:
        key, _, value = word.partition("=")
        if key in ("grid", "experiment") or (_varies(value) and key not in _COLUMNS):
            return None
        words.append(f"{key}={_typed(best[_COLUMNS[key]])}" if _varies(value) else word)
    return words


def _varies(value: str) -> bool:
    return "," in value or "(" in value


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run(words: Sequence[str]) -> list[str]:
    return [RUN, *words]


def _beside_another(folder: Path) -> list[str]:
    return ["experiments/report.py", _near(folder), "OTHER"]


def _near(folder: Path) -> str:
    """As one types it from here, but for the shell's quotes."""
    near = os.path.relpath(folder)
    return str(folder) if near.startswith("..") else near
