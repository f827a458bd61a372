"""The measured constants: what differs between training frameworks, and what all machines and frameworks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipesim.checks import Checks

CostKind = Literal["full", "lecture"]
Outside = Literal["stack", "chip", "moe", "fp8", "size", "sequence"]
FlopConvention = Literal["palm", "causal", "kaplan", "narayanan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """What differs between training frameworks: kernels, what hides behind what, recipes, buffers.

    ``based_on`` names the stack whose measured runs stand behind the constants, if that is another one, ``framework`` the
    program whose flags and rules are meant (``launch.rules``), None if there is none.

    ``gemm_efficiency`` is what a large matrix product reaches of the peak, by ``ClusterSpec.chip``; ``default`` stands
    for chips that were never measured. ``fp8_efficiency`` is fp8's share of that. Launch times are the host's for one
    layer's kernels, ``synchronous`` if the GPU waits for each; where a pipeline leaves its node the host takes at least
    ``spanning_launch_s`` for a layer and ``spanning_rank_launch_s`` more for each tensor rank.

    Bytes move through memory forward: per hidden element (``norm_bytes``), per element of the MLP's activation
    (``mlp_bytes``), per logit (``logits_bytes``), per updated parameter (``optimizer_bytes``). Overlaps are the shares
    hidden behind computing: of tensor parallelism, of reducing gradients, of gathering the weights that ZeRO-1 and 2
    divide; ``gather_interference`` is what hidden ZeRO-3 gathering still costs. ``blocking_hops``: a rank stands still
    while it hands its result on, which takes ``hop_start_s`` before bytes flow. ``step_s`` is spent once a step.
    ``reduces_whole``: where ZeRO-1 divides the optimizer, every rank gets the sum of all gradients nevertheless, not of its
    shard alone.

    For each parameter and micro-batch ``accumulation_bytes`` move to add its gradient to those of earlier micro-batches,
    in kernels of their own; with 0 the product that makes the gradient reads and writes the sum.

    Memory: bytes of gradients held and sent per parameter, activations over what is counted, bytes kept per hidden element
    by norms and, in runs without a pipeline, of what sequence parallelism gathers, bytes per logit, whole vocabularies on
    every tensor rank (``logits_gathered``) or bytes more where these share them (``logits_shared_bytes``), whether ZeRO-3
    is PyTorch's FSDP (``fsdp``: shards in fp32 alone, both ends of the model whole all along), whether fp8 keeps copies of
    its own (``fp8_copies``), what driver and libraries hold, and the allocator's slack over what is asked for.

    fp8: bytes moved to bring one element of a product's operand to it (``fp8_cast_bytes``), and whether operands are
    brought to it before ranks gather them (``fp8_gathers``), or tokens before they travel to their experts (``fp8_dispatch``).
    ``relayed_dispatch``: a token crosses the network once to each node of its experts, not once to each of these.

    ``own_runs`` counts by chip the different runs of one's own that ``experiment=calibrate`` fitted the constants to, and
    ``own_reasons`` are those of ``calibrate.intervals.REASONS`` that all of these runs had: intervals are narrower for them.
    """

    name: str
    based_on: str = ""
    framework: str | None = None
    gemm_efficiency: Mapping[str, float] = field(hash=False)
    fp8_efficiency: float = 1.0
    fp8_cast_bytes: float = 4.0
    fp8_gathers: bool = False
    fp8_dispatch: bool = False
    relayed_dispatch: bool = False
    forward_launch_s: float = 0.0
    backward_launch_s: float = 0.0
    synchronous: bool = False
    spanning_launch_s: float = 0.0
    spanning_rank_launch_s: float = 0.0
    norm_bytes: float = 0.0
    mlp_bytes: float = 0.0
    logits_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    tp_overlap: float = 0.0
    dp_overlap: float = 0.0
    gather_overlap: float = 0.0
    gather_interference: float = 0.0
    blocking_hops: bool = True
    hop_start_s: float = 0.0
    step_s: float = 0.0
    gradient_bytes: int = 4
    accumulation_bytes: float = 0.0
    reduce_bytes: int = 4
    reduces_whole: bool = False
    activation_scale: float = 1.0
    norm_kept_bytes: float = 4.0
    gathered_kept_bytes: float = 0.0
    logits_held_bytes: float = 0.0
    logits_gathered: bool = False
    logits_shared_bytes: float = 0.0
    fsdp: bool = False
    fp8_copies: bool = False
    device_context_bytes: float = 0.0
    slack: float = 0.0
    own_runs: Mapping[str, int] = field(default_factory=dict, hash=False)
    own_reasons: tuple[Outside, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        checks = Checks("stack")
        checks.rule("default" in self.gemm_efficiency, "stack.gemm_efficiency needs a value for default.")
        checks.fraction(**{f"gemm_efficiency.{chip}": value for chip, value in self.gemm_efficiency.items()})
        checks.fraction(
            tp_overlap=self.tp_overlap, dp_overlap=self.dp_overlap, gather_overlap=self.gather_overlap,
            gather_interference=self.gather_interference,
            slack=self.slack,
        )  # fmt: skip
        checks.positive(
            **{f"gemm_efficiency.{chip}": value for chip, value in self.gemm_efficiency.items()},
            fp8_efficiency=self.fp8_efficiency, activation_scale=self.activation_scale,
        )  # fmt: skip
        checks.whole(gradient_bytes=self.gradient_bytes, reduce_bytes=self.reduce_bytes)
        for reason in self.own_reasons:
            checks.choice(Outside, own_reasons=reason)
        checks.whole(**{f"own_runs.{chip}": runs for chip, runs in self.own_runs.items()})
        human = {
            "forward_launch_us": self.forward_launch_s * 1e6, "backward_launch_us": self.backward_launch_s * 1e6,
            "spanning_launch_us": self.spanning_launch_s * 1e6,
            "spanning_rank_launch_us": self.spanning_rank_launch_s * 1e6,
            "hop_start_us": self.hop_start_s * 1e6, "step_ms": self.step_s * 1e3,
            "device_context_gb": self.device_context_bytes / 1e9,
        }  # fmt: skip
        moved = (
            "fp8_cast_bytes", "norm_bytes", "mlp_bytes", "logits_bytes", "optimizer_bytes", "accumulation_bytes",
            "norm_kept_bytes", "gathered_kept_bytes", "logits_held_bytes", "logits_shared_bytes",
        )  # fmt: skip
        checks.not_negative(**human, **{name: getattr(self, name) for name in moved})
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConstants:
    """The few constants that all machines and stacks share; ``kind="lecture"`` is the idealised model, without any.

    Efficiencies are achieved over peak. ``gemm_inner_half_dim`` is the inner dimension at which a matrix product reaches
    half its asymptotic speed on a machine with an A100's FLOPs for each byte of memory traffic (``compute.balance``).
    ``collective_start_s`` is what a collective of two ranks takes before bytes flow. ``score_bytes`` moves for each
    attention score through memory, by kernel. ``flops`` names what MFU, HFU and TFLOP/s count (``costs.flops``), None the
    model's own habit: palm, in the idealised model kaplan, which is all it knows.
    """

    kind: CostKind
    flops: FlopConvention | None = None
    gemm_inner_half_dim: float = 0.0
    unfused_efficiency: float = 1.0
    hbm_efficiency: float = 1.0
    intra_node_efficiency: float = 1.0
    inter_node_efficiency: float = 1.0
    collective_start_s: float = 0.0
    torch_score_bytes: float = 0.0
    unfused_score_bytes: float = 0.0

    def __post_init__(self) -> None:
        checks = Checks("costs")
        checks.choice(CostKind, kind=self.kind)
        if self.flops is not None:
            checks.choice(FlopConvention, flops=self.flops)
            checks.rule(
                self.kind != "lecture" or self.flops == "kaplan",
                f"costs.flops={self.flops}: costs.kind=lecture counts 6 FLOPs a parameter alone. Nearest: costs.flops=null.",
            )
        efficiencies = {name: getattr(self, name) for name in self.__slots__ if name.endswith("_efficiency")}
        checks.positive(**efficiencies)
        checks.fraction(**efficiencies)
        checks.not_negative(
            gemm_inner_half_dim=self.gemm_inner_half_dim, collective_start_us=self.collective_start_s * 1e6,
            torch_score_bytes=self.torch_score_bytes, unfused_score_bytes=self.unfused_score_bytes,
        )  # fmt: skip
        checks.done()

    @property
    def convention(self) -> FlopConvention:
        return self.flops or ("kaplan" if self.kind == "lecture" else "palm")
