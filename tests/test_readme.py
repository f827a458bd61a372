"""What the README shows is what the commands print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from points import configs
from test_errors import main_of

from pipesim import compose, config, errors, legality, spec_config
from pipesim.costs.parameters import total_parameters

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _shown() -> list[tuple[str, list[str]]]:
    """(command, lines shown under it) for every ``$`` line of a console block that has output."""
    shown = []
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
            if output:
                shown.append((command, [line for line in output.splitlines() if line != "…"]))
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), _shown(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_readmes_output_is_real(command, lines, tmp_path, monkeypatch, capsys):
    words = shlex.split(command)
    assert words[:2] == ["python", "experiments/run.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(compose.JOBS_VARIABLE, "unset")
    monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
    monkeypatch.setattr(sys, "argv", ["run.py", *words[2:], f"study.dir={tmp_path / 'study'}"])
    assert errors.guarded(main_of("run")) == errors.OK
    printed = iter(capsys.readouterr().out.splitlines())
    missing = [line for line in lines if line not in printed]
    assert not missing, "lines that were not printed, or not in this order"


def test_the_readme_shows_three_real_outputs():
    assert [command for command, _ in _shown()] == [
        "python experiments/run.py -m parallel.t=1,2,4,8 parallel.p=6,12,24",
        "python experiments/run.py",
        "python experiments/run.py experiment=plan",
    ]


def _commands() -> list[str]:
    """Every whole command in the README's tables and in the help text."""
    helped = (ROOT / "conf" / "config.yaml").read_text(encoding="utf-8").replace("\\\n", "").replace("\n", "`\n")
    texts = README + helped
    found = re.findall(r"python experiments/run\.py ([^`\n$]+)", texts)
    return sorted({each.strip() for each in found if not re.search(r"FILE|PATH|--help|--cfg|-sc", each)})


@pytest.mark.slow
@pytest.mark.parametrize("command", _commands())
def test_what_the_readme_tells_to_type_keeps_every_rule(command):
    words = compose.with_canonical_schedules([word for word in shlex.split(command) if word != "-m"])
    axes = {key: value.split(",") for key, value in (word.split("=", 1) for word in words if compose.is_several(word))}
    fixed = [word for word in words if word.split("=")[0] not in axes]
    with compose.composer() as (make, loader):
        for asked in configs(compose.expand(make, loader, fixed, axes)):
            if asked["demo"] is None and asked["grid"] is None and not command.startswith("experiment"):
                legality.resolve(config.build(asked))


def test_the_readmes_model_is_one():
    (text,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    model = OmegaConf.merge(OmegaConf.structured(spec_config.ModelConf), OmegaConf.create(text))
    assert total_parameters(config.build_model(OmegaConf.to_container(model))) > 1e10


@pytest.mark.slow
def test_the_readmes_python_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
