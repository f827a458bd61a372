"""A vocabulary that is spread over all ranks of a pipeline: what its passes exchange and move beyond one embedding and head.

Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, sections 4 and 5 and appendix B,
and its program (sail-sg on GitHub, VocabularyParallelism): the schedules and ``VocabParallelOutput``; interlaced is the
schedule of Lin et al., "nnScaler", OSDI 2024, as that program runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.costs import kernels, topology
from pipesim.costs.collectives import Collective
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.kernels import Machine
from pipesim.costs.memory import ELEMENT_BYTES
from pipesim.costs.stage import Stages, StageSeconds
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec, Point, SpreadVocab, StackSpec

STATISTIC_BYTES = 4
"""Of a token's largest logit, of its label's and of the sum of exponents: fp32."""

BROADCAST_BYTES = {"algorithm_1": 4, "algorithm_2": 4, "interlaced": ELEMENT_BYTES}
"""Of an element of the last layer's output: algorithms 1 and 2 send it in fp32, beside the loss's gradient."""

LOGIT_BYTES = {"algorithm_1": (0.0, 8.0), "algorithm_2": (6.0, 8.0), "interlaced": (0.0, 0.0)}
"""Moved for each logit beyond ``logits_bytes``, in S and in T: T scales the local softmax (8); algorithm 2 needs it in 16
bits in S already (6)."""

HIDDEN_BYTES = {"algorithm_1": 14.0, "algorithm_2": 32.0, "interlaced": 0.0}
"""Moved for each element of the last layer's output: copied out of its message (8) and cast back (6); in algorithm 2 also
rows of the labels fetched (4) and masked (4), the gradient's two parts scaled (4) and subtracted (6)."""


def collectives(
    model: ModelSpec, cluster: ClusterSpec, costs: CostConstants, cut: Cut, spread: SpreadVocab
) -> tuple[list[Collective], list[Collective]]:
    """What every rank exchanges for one micro-batch, forward and backward.

    The last layer's output goes to all ranks (S), which add up maxima, the labels' logits and sums of exponents, and the
    gradient of the output; each has its part of the embeddings to add up, and needs their gradient. Where these two run
    beside computing, an all-reduce of one number keeps each in order. Each of v stages on a rank counts for 1/v of it.
    """
    if spread == "none":
        return [], []
    among = topology.group(cluster, costs, [(cut.p, cut.stride("p"))], cut.gpus, "pp")
    tokens, hidden = cut.tokens / cut.norm_share, cut.tokens * model.hidden / cut.norm_share
    hides, each = spread != "interlaced", 1 / np.asarray(cut.v)
    output = Collective("vocab", "broadcast", among, hidden * BROADCAST_BYTES[spread], each, hides)
    statistics = Collective("vocab", "all-reduce", among, tokens * STATISTIC_BYTES, 3 * each, hides)
    summed = Collective("vocab", "all-reduce", among, hidden * ELEMENT_BYTES, each, hides)
    gradient = output._replace(message_bytes=hidden * ELEMENT_BYTES)
    order = [Collective("vocab", "all-reduce", among, 4.0, each)] if hides else []
    return [output, statistics, summed, *order], [summed, gradient, *order]


def added(seconds: StageSeconds, point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> StageSeconds:
    """The seconds of stages and what spreading the vocabulary adds to them: items vocab and elementwise."""
    spread = point.layout.spread_vocab
    if spread == "none":
        return seconds
    ways: tuple[list[Collective], ...] = (*collectives(model, point.cluster, point.costs, cut, spread), [])
    moving = elementwise_s(model, cut, stages, spread, kernels.machine(point.cluster, point.costs, point.stack, cut))
    found = []
    for op, way, moves_s in zip(seconds, ways, moving, strict=True):
        more = op | {"elementwise": op["elementwise"] + moves_s}
        talk_s = exposed_s(way, sum(more.values()), point.stack)
        found.append(more | {"vocab": talk_s + 0.0 * more["elementwise"]})
    return StageSeconds(*found)


def exposed_s(way: Sequence[Collective], window_s: Number, stack: StackSpec) -> Number:
    """Seconds that computing for ``window_s`` does not hide: algorithms 1 and 2 exchange on a stream of their own, as
    gradients are (``dp_overlap``), interlaced passes wait.
    """
    waits = sum(each.seconds() for each in way if not each.hidden)
    beside = sum(each.seconds() for each in way if each.hidden)
    return waits + beside - stack.dp_overlap * np.minimum(beside, window_s)


def elementwise_s(
    model: ModelSpec, cut: Cut, stages: Stages, spread: SpreadVocab, on: Machine
) -> tuple[Number, Number, Number]:
    """Memory traffic of one micro-batch on each stage beyond its share of one embedding and one head, for F, I and W.

    Each rank makes and takes back embeddings for all tokens, of which its share of the rows gives a part.
    """
    if spread == "none":
        return 0.0, 0.0, 0.0
    hidden, each = cut.tokens * model.hidden / cut.norm_share, 1 / np.asarray(cut.v)
    logits = cut.tokens * model.vocab / cut.t * stages.head
    rows = cut.tokens * model.hidden * 4 * (each - stages.embedding)
    in_s, in_t = LOGIT_BYTES[spread]
    moved: tuple[FloatArray, ...] = (rows + hidden * HIDDEN_BYTES[spread] * each + logits * in_s, logits * in_t, rows)
    forward, input_grad, weight_grad = (each / on.hbm_bytes_per_s for each in moved)
    return forward, input_grad, weight_grad
