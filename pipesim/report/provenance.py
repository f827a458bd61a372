"""Where a study comes from: its command, its versions, its config, and the measured runs behind its constants."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.report.document import Column, Section, Table
from pipesim.report.say import Say, english, word

_NOT_ASKED = ("study", "engine", "resume", "resume_anyway", "fail_fast", "grid", "demo", "task", "lang", "hydra")
"""Keys of a config that say where and how a study is made, or are long and no setting of a point."""

_ROLES = {"calibration": ("fitted to", "用于拟合"), "dev": ("looked at, not fitted to", "看过，未拟合")}


def provenance(manifest: Mapping[str, Any], say: Say = english) -> str:
    """The command without the places where its study was made and went to, on which a report does not depend."""
    overrides = [word for word in manifest["overrides"] if not word.startswith(("study.dir", "study.name", "engine"))]
    own_axes = any(word.startswith(("grid=", "experiment=")) for word in overrides)
    swept = ["-m"] if manifest["kind"] in ("sweep", "runs") and not own_axes else []
    command = shlex.join(["python", "experiments/run.py", *manifest.get("own_configs", []), *swept, *overrides])
    version = manifest["versions"]["pipesim"]
    return say(f"Made by pipesim {version}: {command}", f"由 pipesim {version} 生成：{command}")


def behind(manifest: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], say: Say) -> tuple[Section, ...]:
    """``rows`` are the study's, or those of them that are shown; nothing for idealised costs."""
    found = tuple(_behind(manifest, rows, say))
    return (Section(title=say("The data behind the constants", "常数背后的数据"), blocks=found),) if found else ()


def details(manifest: Mapping[str, Any], say: Say) -> Section:
    """What a reader wants in order to repeat the study, and nobody in a terminal."""
    return Section(
        title=say("Versions and config", "版本与配置"),
        blocks=(_hashes(manifest, say), _versions(manifest, say), *_config(manifest, say)),
        aside=True,
    )


def _behind(manifest: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], say: Say) -> Iterator[str | Table]:
    """Of full costs: how many measured runs their constants come from, and how far off comparable ones are."""
    priced = sorted({str(row["stack"]) for row in rows if row["costs"] == "full"})
    known = [each for each in manifest.get("evidence", []) if each["step_times"] or each["memories"]]
    conf = _config_of(manifest).get("stack", {})
    base = conf.get("based_on")
    for stack in priced:
        if stack == conf.get("name"):
            yield from (_own_runs(stack, chip, runs, say) for chip, runs in conf.get("own_runs", {}).items())
        itself = [each for each in known if each["stack"] == stack]
        mine = itself or [each for each in known if each["stack"] == base]
        was_fitted = conf.get("own_runs") or any(each["role"] == "calibration" for each in itself)
        if stack == conf.get("name") and base and not was_fitted:
            yield say(
                f"No run was fitted for stack {stack} itself: intervals count it as measured, for it is based on {base}.",
                f"{stack} 栈本身没有用实测标定：区间把它算作测过，因为它依据 {base} 栈。",
            )
        if mine:
            yield _evidence(stack, mine, say)
        else:
            yield say(
                f"No measured run stands behind the constants of stack {stack}.", f"{stack} 栈的常数背后没有实测。"
            )


def _own_runs(stack: str, chip: str, runs: int, say: Say) -> str:
    many = "one run" if runs == 1 else f"{runs} runs"
    return say(
        f"The constants of stack {stack} were fitted to {many} of one's own on {chip}; intervals there are as wide as so many"
        " runs leave them.",
        f"{stack} 栈的常数由自己在 {chip} 上的 {runs} 次实测标定；该芯片上的区间按此收窄。",
    )


def _evidence(stack: str, lines: Sequence[Mapping[str, Any]], say: Say) -> Table:
    return Table(
        title=say(f"Measured runs with the constants of {stack}", f"{stack} 栈常数对应的实测"),
        columns=(
            Column(title="GPU"), Column(title=say("runs are", "用途")), Column(title=say("runs", "实测数"), kind="count"),
            Column(title=say("most GPUs", "最多 GPU 数"), kind="count"),
            Column(title=say("step times", "步时数"), kind="count"),
            Column(title=say("mean error of step time", "步时平均误差"), kind="percent"),
            Column(title=say("memories", "显存数"), kind="count"),
            Column(title=say("mean error of memory", "显存平均误差"), kind="percent"),
        ),
        rows=tuple(
            (
                each["chip"], word(each["role"], _ROLES, say), each["runs"], each["gpus"], each["step_times"],
                each["step_time_error"], each["memories"], each["memory_error"],
            )
            for each in lines
        ),
        note=say(
            "Published runs of this stack, predicted with the constants of this version; error is |predicted /"
            " measured - 1|. "
            "experiment=validate shows every run.",
            "该栈已发表的实测，用本版本的常数预测；误差为 |预测 / 实测 - 1|。experiment=validate 列出每一次运行。",
        ),
    )  # fmt: skip


def _hashes(manifest: Mapping[str, Any], say: Say) -> str:
    config = _config_of(manifest)
    told = hashlib.sha256(json.dumps(config, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
    code = f"{manifest['code'][0]}" if manifest.get("code") else ""
    more = say(f"; code {code}", f"；代码 {code}") if code else ""
    return say(
        f"Hashes: config {told}{more}. Those of all files stand in manifest.json, each point's is its point_id.",
        f"哈希：配置 {told}{more}。所有文件的哈希见 manifest.json，每个点的哈希即其 point_id。",
    )


def _versions(manifest: Mapping[str, Any], say: Say) -> Table:
    return Table(
        title=say("Versions", "版本"),
        columns=(Column(title=say("what", "名称")), Column(title=say("version", "版本号"))),
        rows=tuple((name, str(version)) for name, version in manifest["versions"].items()),
    )


def _config(manifest: Mapping[str, Any], say: Say) -> Iterator[Table]:
    lines = tuple(_leaves(_config_of(manifest)))
    if lines:
        swept = "first_point" in manifest
        yield Table(
            title=say("Config of the first point", "第一个点的配置") if swept else say("Config", "配置"),
            columns=(Column(title=say("key", "键")), Column(title=say("value", "值"))),
            rows=lines,
        )


def _config_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    config = manifest.get("first_point") or manifest.get("config") or {}
    return {key: value for key, value in config.items() if key not in _NOT_ASKED}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every key with its value as YAML would have it; what is not set is left out."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, f"{key}.{name}".lstrip("."))
    elif value is not None:
        yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
