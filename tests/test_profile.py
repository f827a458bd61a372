"""The task ``profile``: measured curves become a cluster and a stack, and stand beside what these predict."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("torch")

from pipesim import config, spec_config
from pipesim.checks import Invalid
from pipesim.compose import composer
from pipesim.costs.kernels import Machine, balance, gemm_s
from pipesim.execute import profile_links
from pipesim.execute.profile import Attention, Copy, Device, Kernels, Product
from pipesim.execute.profile_links import Message
from pipesim.report.document import Document, Observations
from pipesim.specs import CostConstants, StackSpec
from pipesim.tasks.profile import fit as profile_fit
from pipesim.tasks.profile import profiled
from pipesim.tasks.profile.task import profile, refuse_other_chips

TINY = {
    "products": [[512, 512, 512], [512, 512, 64], [1, 64, 64]], "lengths": [16, 32], "heads": 2, "head_dim": 16,
    "copied_bytes": [1 << 20], "message_bytes": [1024, 65536],
}  # fmt: skip
GPU = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", count=2, multiprocessors=132, memory_bytes=80 * 10**9)
SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (8192, 8192, 512), (8192, 8192, 1024), (16, 8192, 8192))


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    with composer() as (make, _):
        return config.plain(make(["experiment=profile", "cluster=dgx_h100", "stack=megatron_lm"]))


def asked(default: dict[str, Any], **changes: Any) -> dict[str, Any]:
    conf = default["task"]["profile"] | {"cpu": TINY, "device": "cpu", "repeats": 1, "date": "2026-01-02"} | changes
    return default | {"task": {"profile": conf}}


def on(default: dict[str, Any], efficiency: float = 1.0) -> Machine:
    stack = StackSpec(name="known", gemm_efficiency={"default": efficiency})
    return profile_fit.machine(
        config.build_cluster(default["cluster"]), stack, config.build_costs(default["costs"]), "bf16"
    )


def curves(machine: Machine) -> Kernels:
    """As the cost model itself predicts them."""
    products = [Product(rows=m, outputs=n, inputs=k, seconds=float(gemm_s(m, n, k, machine))) for m, n, k in SHAPES]
    attention = [Attention(length=n, heads=32, head_dim=128, seconds=0.0) for n in (1024, 4096)]
    reached = 0.5 * machine.peak_flops_per_s
    return Kernels(
        products=tuple(products), attention=tuple(replace(each, seconds=each.flops / reached) for each in attention),
        copies=(Copy(copied_bytes=10**6, seconds=1.0), Copy(copied_bytes=10**9, seconds=1e-3)), core_share=1.0,
    )  # fmt: skip


def messages(latency_s: float, bytes_per_s: float, start_s: float) -> tuple[Message, ...]:
    return tuple(
        Message(
            message_bytes=n,
            send_s=latency_s + n / bytes_per_s,
            all_reduce_s=2 * (start_s + latency_s) + n / bytes_per_s,
        )
        for n in (1_000, 100_000, 10_000_000)
    )


def claims(document: Document) -> str:
    blocks = [block for section in document.sections for block in section.blocks]
    return "\n".join(claim for block in blocks if isinstance(block, Observations) for claim in block.claims)


def loaded(schema: Any, text: str | bytes) -> Any:
    return OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(str(text))))


def test_a_fit_finds_the_constants_that_made_the_curves(default: dict[str, Any]) -> None:
    machine = on(default, 0.7)
    fitted = profile_fit.fit(curves(machine), messages(4e-6, 2e11, 2e-5), machine, peak_is_known=True)
    assert fitted.gemm_efficiency == pytest.approx(0.7)
    assert fitted.inner_half_dim == pytest.approx(machine.costs.gemm_inner_half_dim, rel=1e-6)
    assert (fitted.flash_efficiency, fitted.hbm_bytes_per_s) == pytest.approx((0.5, 2e12))
    assert fitted.send == pytest.approx((4e-6, 2e11), rel=1e-4)
    assert profile_fit.start_s(fitted.send, fitted.all_reduce) == pytest.approx(2e-5, rel=1e-4)
    assert (fitted.peak_flops_per_s, fitted.costs) == (None, machine.costs)


def test_without_a_datasheet_the_best_product_is_the_peak_and_the_shared_constants_its_own(
    default: dict[str, Any],
) -> None:
    machine = on(default, 0.7)
    made = curves(machine)
    blind = machine._replace(peak_flops_per_s=1.0, costs=CostConstants(kind="full"))
    fitted = profile_fit.fit(made, messages(4e-6, 2e11, 2e-5), blind, peak_is_known=False)
    assert fitted.peak_flops_per_s == max(each.flops / each.seconds for each in made.products)
    effective = fitted.costs.gemm_inner_half_dim * balance(fitted.peak_flops_per_s, fitted.hbm_bytes_per_s)
    assert effective == pytest.approx(machine.costs.gemm_inner_half_dim * machine.balance, rel=1e-6)
    assert fitted.costs.collective_start_s == pytest.approx(2e-5, rel=1e-4)


def test_a_disturbed_small_product_does_not_make_the_peak(default: dict[str, Any]) -> None:
    machine = on(default, 0.7)
    made = curves(machine)
    blind = machine._replace(peak_flops_per_s=1.0, costs=CostConstants(kind="full"))
    tiny = Product(rows=16, outputs=512, inputs=512, seconds=1e-12)
    plain, disturbed = (
        profile_fit.fit(replace(made, products=products), (), blind, peak_is_known=False)
        for products in (made.products, (*made.products, tiny))
    )
    assert disturbed == plain


def test_curves_that_no_constants_give_back_are_refused(
    default: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = curves(on(default, 0.7))
    wild = [replace(each, seconds=each.seconds * 100 ** (k % 2)) for k, each in enumerate(made.products)]
    monkeypatch.setattr(profiled, "_measured", lambda *_: (replace(made, products=tuple(wild)), ()))
    with pytest.raises(Invalid, match=r"lie a factor of [\d.]+ \(median\) off .* larger task.profile.repeats"):
        profiled.run(asked(default), GPU, "2026-01-02")


def test_a_line_has_no_negative_latency_and_a_finite_bandwidth() -> None:
    assert profile_fit.line([(1e3, 1e-9), (1e6, 1e-3)]).latency_s >= 0
    assert profile_fit.line([(1e3, 1e-3), (1e6, 1e-3)]).bytes_per_s == 1e9


def test_on_gpus_the_datasheets_peak_stays_and_links_come_from_the_fit(
    default: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = curves(on(default, 0.7))
    monkeypatch.setattr(profiled, "_measured", lambda asked, device: (made, messages(4e-6, 2e11, 2e-5)))
    done = profiled.run(asked(default), GPU, "2026-01-02")
    cluster = config.build_cluster(loaded(spec_config.ClusterConf, done.files["conf/cluster/profiled.yaml"]))
    stack = config.build_stack(loaded(spec_config.StackConf, done.files["conf/stack/profiled.yaml"]))
    efficiency = default["costs"]["intra_node_efficiency"]
    assert cluster.peak_flops_per_s == config.build_cluster(default["cluster"]).peak_flops_per_s
    assert cluster.intra_node.bandwidth_bytes_per_s * efficiency == pytest.approx(2e11, rel=1e-3)
    assert cluster.intra_node.latency_s == pytest.approx(4e-6, rel=1e-3)
    assert stack.gemm_efficiency["h100"] == pytest.approx(0.7)
    assert set(done.files) == {"conf/cluster/profiled.yaml", "conf/stack/profiled.yaml"}


def test_one_gpu_has_no_links_to_measure_and_says_so(default: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled, "_measured", lambda asked, device: (curves(on(default)), ()))
    done = profiled.run(asked(default), replace(GPU, count=1), "2026-01-02")
    cluster = config.build_cluster(loaded(spec_config.ClusterConf, done.files["conf/cluster/profiled.yaml"]))
    assert cluster.intra_node == config.build_cluster(default["cluster"]).intra_node
    assert "it takes two GPUs" in str(done.document)


def test_a_cpus_files_load_and_say_that_their_peak_was_measured(
    default: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_links, "messages", lambda *_, **__: messages(1e-4, 1e9, 1e-4))
    done = profile(asked(default))
    cluster = config.build_cluster(loaded(spec_config.ClusterConf, done.files["conf/cluster/profiled.yaml"]))
    stack = config.build_stack(loaded(spec_config.StackConf, done.files["conf/stack/profiled.yaml"]))
    costs = config.build_costs(loaded(spec_config.CostsConf, done.files["conf/costs/profiled.yaml"]))
    assert (cluster.chip, cluster.name, stack.name, costs.kind) == ("cpu", "profiled", "profiled", "full")
    assert 0 < stack.gemm_efficiency["cpu"] <= 1
    assert "2026-01-02" in cluster.source
    assert "measured, not a datasheet value" in claims(done.document)
    assert claims(done.document).count("off in the median") == 4


@pytest.mark.alone
@pytest.mark.slow
def test_messages_between_two_processes_take_time() -> None:
    found = profile_links.messages("cpu", [1024, 1 << 20], repeats=2, threads=1, timeout_s=60)
    assert [each.message_bytes for each in found] == [1024, 1 << 20]
    assert all(each.all_reduce_s > 0 and each.send_s > 0 for each in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "tpu"}, "device='tpu' must be one of cpu, cuda, auto. Nearest: auto."),
        ({"repeats": 0}, "repeats=0 must be at least 1. Nearest: 1."),
        ({"name": "../own"}, "Nearest: own."),
        ({"cpu": TINY | {"products": [[4, 4]]}}, "cpu.products: [4, 4] must be [M, N, K]"),
        ({"cpu": TINY | {"message_bytes": [8]}}, "cpu.message_bytes=[8] must hold at least 2 sizes."),
        ({"cpu": TINY | {"message_bytes": [8, 8]}}, "are all alike"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_key(
    default: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid) as error:
        profile(asked(default, **changes))
    assert words in str(error.value)
    assert all(problem.startswith("task.profile.") for problem in error.value.problems)


def test_a_gpu_needs_the_cluster_of_its_own_datasheet() -> None:
    refuse_other_chips("NVIDIA H100 80GB HBM3", "h100")
    with pytest.raises(Invalid, match="Nearest: cluster=aws_p5 or cluster=dgx_h100"):
        refuse_other_chips("NVIDIA H100 80GB HBM3", "a100_80g")
    with pytest.raises(Invalid, match="its datasheet's peaks"):
        refuse_other_chips("NVIDIA GeForce RTX 4090", "h100")


@pytest.mark.slow
def test_without_torch_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pipesim.checks import Invalid\n"
        "from pipesim.tasks.profile.task import profile\n"
        "try: profile({'task': {'profile': {}}})\n"
        "except Invalid as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "with torch, which is not installed" in done.stdout
