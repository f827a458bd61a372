"""Spaces hold the configs that Hydra's own basic sweeper composes, each as often, for any list of overrides."""

import collections
import functools
import itertools
import json
import random

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from hydra_plugins import _pipesim_sweeper
from points import configs

from pipesim import compose, config, expand

MOST_JOBS = 3
"""Jobs of one list that Hydra composes for comparison, at a quarter of a second each."""

WORDS = (
    "model=toy,mixtral_8x7b", "model=llama3_8b", "model=glob(llama2*)", "cluster=dgx_h100,dgx_a100",
    "schedule=gpipe,1f1b,zbv", "schedule=choice(naive,hanayo)", "parallel=bloom,fsdp", "training=megatron",
    "stack=ideal,nanotron", "costs=lecture,full", "experiment=execute", "experiment=validate,profile",
    "experiment=null,execute", "demo=bubble", "~task", "~experiment", "+demo=bubble", "parallel.t=1,2,4",
    "parallel.t=range(1,4)", "parallel.t=8", "++parallel.t=1,2", "+parallel.t=3", "parallel.p=range(2,9,3)",
    "parallel.p=shuffle(1,2,3)", "parallel.p=sort(3,1,2)", "parallel.d=null,2", "parallel.d=8",
    "parallel.t=int(1.5,2.5)", "parallel.sequence_parallel=true,FALSE", "parallel.zero=0,1,1",
    "parallel.partition=even,[1,2,3]", "parallel.partition=[1,2],[3]", "parallel.partition=balanced",
    "parallel.context=ring,'ulysses'", "training.recompute=none,full", "training.micro_batch=1,2",
    "training.micro_batch=010,1_0", "training.seq_length=null,1024", "training.global_batch=choice(8,16)",
    "training.dropout=yes,no", "training.recompute_layers=1,null,[1,2]", "model.name='two words','a,b'",
    'model.name="it\'s","試驗"', "model.name=''", "model.name=null", "model.name=a b,c",
    "model.name='${cluster.name}',x", "model.name=${cluster.name}", "cluster.name=y,z",
    "cluster.name=${model.source}", "model.source=12,1e3", "model.moe.top_k=1,8", "model.moe=null",
    "model.moe.experts=4", "+model.extra=1,2", "+cluster.peak_tflops.fp4=1,2", "~cluster.peak_tflops.bf16",
    "cluster.peak_tflops={bf16: 1},{bf16: 2}", "cluster.peak_tflops.bf16=1,2", "cluster.peak_tflops.bf16=7",
    "cluster.peak_tflops={bf16: 9}", "cluster.memory_gb=80,1e2", "cluster.memory_gb=range(40,80,20)",
    "cluster.memory_gb=float(40,80)", "cluster.memory_gb=inf,nan", "cluster.gpus=384,8",
    "stack.dp_overlap=0,0.5", "stack.gemm_efficiency.bf16=0.5,0.6", "lang=en,zh", "study.name=a,null",
    "study.name='null'", "schedule.name=gpipe,vpp", "schedule.group=null,2", "task.execute.m=4,8",
    "task.execute.options={a: 1}", "nothing=1,2", "parallel.q=1,2", "hydra.job.name=a,b",
    "measurements=null,x", "grid=null,bloom_384", "model.layers=abc,4", "model.layers=???",
)  # fmt: skip

REFUSED = (
    "nothing=1,2", "parallel.q=1,2", "model.layers=abc,4", "model.layers=???", "+model.extra=1,2", "+parallel.t=3", "+demo=bubble",
    "model.name=null", "~task", "~experiment", "experiment=null,execute", "grid=null,bloom_384",
)  # fmt: skip
"""Of these some that Hydra refuses alone: lists of several leave them out."""


@pytest.fixture(scope="module")
def hydra():
    with compose.composer() as (make, loader):
        cached = functools.cache(lambda overrides: make(list(overrides)))
        yield (lambda overrides: cached(tuple(overrides)), make, loader)


def text(asked):
    return json.dumps(asked, sort_keys=True)


def lists(seed, count):
    rng = random.Random(seed)
    words = [word for word in WORDS if word not in REFUSED]
    return [rng.sample(words, rng.choice([2, 2, 3, 3, 4])) for _ in range(count)]


def ours(make, loader, words):
    fixed, axes = _pipesim_sweeper._split(OverridesParser.create(config_loader=loader), words)
    spaces = expand.expand(make, loader, fixed, axes)
    return [text(space.config(index)) for space in spaces for index in range(len(space))]


def attempt(function):
    try:
        return function(), None
    except Exception as error:
        return None, error


def compare(hydra, words, seed=0):
    composed, make, loader = hydra
    (jobs,) = BasicSweeper.split_arguments(OverridesParser.create(config_loader=loader).parse_overrides(words), None)
    found, refused = attempt(lambda: ours(make, loader, words))

    def theirs(job):
        composition = composed(job)
        config.refuse_unknown(composition)
        return text(config.plain(composition))

    sample = range(len(jobs))
    if refused is None and len(jobs) > MOST_JOBS:
        sample = random.Random(seed).sample(sample, MOST_JOBS)
    wanted, refused_by_hydra = attempt(lambda: [theirs(jobs[k]) for k in sample])
    assert (refused is None) == (refused_by_hydra is None), (words, refused, refused_by_hydra)
    if refused is None:
        assert len(found) == len(jobs), words
        left = collections.Counter(found)
        if len(wanted) == len(jobs):
            assert left == collections.Counter(wanted), words
        assert not set(wanted) - set(found), words


@pytest.mark.slow
@pytest.mark.parametrize("words", [[word] for word in WORDS], ids=WORDS)
def test_every_kind_of_override_gives_what_hydra_composes(hydra, words):
    compare(hydra, words)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_lists_of_overrides_give_what_hydra_composes(hydra, seed):
    for words in lists(seed, 5):
        compare(hydra, words, seed)


def test_axes_stand_in_one_order_words_first_and_numbers_last(hydra):
    _, make, loader = hydra
    asked = {
        "training.seq_length": ["1024", "2048"], "training.micro_batch": ["2", "1"], "model.layers": ["8", "4"],
        "parallel.p": ["1", "2"],
        "schedule": ["gpipe", "1f1b"], "parallel.t": ["2", "1", "2"],
        "training.recompute": ["none", "full"], "parallel.zero": ["1", "0"],
    }  # fmt: skip
    spaces = expand.expand(make, loader, ["model=toy"], asked)
    assert [space.base["schedule"]["name"] for space in spaces] == ["gpipe", "1f1b"]
    for space in spaces:
        assert [axis.keys[0] for axis in space.axes] == [
            "model.layers", "training.recompute", "parallel.zero", "parallel.t", "parallel.p", "training.micro_batch",
            "training.seq_length",
        ]  # fmt: skip
        assert space.axes[3].values == ((2,), (1,), (2,))


OWN = {
    "model/plain.yaml": "name: plain\nlayers: 4\nhidden: 8\nheads: 2\nvocab: 16\ncontext: 8\n",
    "model/like.yaml": "defaults: [toy]\nname: like\n",
    "schedule/global.yaml": "# @package _global_\nschedule:\n  name: gpipe\nmodel:\n  source: from schedule\n",
    "experiment/pairs.yaml": "# @package _global_\ndefaults:\n  - override /costs: ${stack}\n",
    "costs/nemo.yaml": "kind: lecture\n",
    "costs/ideal.yaml": "kind: lecture\nsource: pair\n",
    "model/follows.yaml": "defaults: [toy]\nname: ${cluster.name}\n",
    "experiment/chooses.yaml": "# @package _global_\ndefaults:\n  - override /stack: nanotron\nparallel:\n  t: 3\n",
    "cluster/chooses.yaml": "defaults: [dgx_a100]\nchip: other\n",
}


@pytest.fixture(scope="module")
def own(hydra, tmp_path_factory):
    """Hydra with a folder of choices of one's own, as --config-dir gives it."""
    folder = tmp_path_factory.mktemp("own")
    for name, content in OWN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    search = ConfigSearchPathImpl()
    for each in hydra[2].get_search_path().get_path():
        search.append(each.provider, each.path)
    search.append("command-line", f"file://{folder}", anchor="main")
    loader = ConfigLoaderImpl(config_search_path=search)
    return lambda overrides: loader.load_configuration("config", overrides, RunMode.RUN), loader


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes",
    [
        {"model": ["toy", "plain"], "cluster": ["dgx_h100", "dgx_a100"], "parallel.t": ["1", "2"]},
        {"model": ["toy", "like"], "cluster": ["dgx_h100", "chooses"], "schedule": ["gpipe", "1f1b"]},
        {"model": ["toy", "plain"], "schedule": ["1f1b", "global"], "cluster.memory_gb": ["1", "2"]},
        {"model": ["toy", "follows"], "cluster": ["jean_zay_a100", "dgx_h100"], "parallel.t": ["1", "2"]},
        {"experiment": ["pairs"], "stack": ["ideal", "nemo"], "model": ["toy", "plain"]},
        {"experiment": ["chooses", "execute"], "stack": ["ideal", "nemo"], "model": ["toy", "plain"]},
    ],
)
def test_choices_that_reach_into_others_are_composed_together(own, axes):
    make, loader = own
    found = configs(expand.expand(make, loader, [], axes))
    jobs = itertools.product(*([f"{key}={value}" for value in values] for key, values in axes.items()))
    wanted = [config.plain(make(list(job))) for job in jobs]
    assert collections.Counter(map(text, found)) == collections.Counter(map(text, wanted))
