"""How much of a long training is useful: failures, checkpoints and restarts; and what batch is worth its tokens.

All formulas take floats and arrays alike, in seconds and bytes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import lambertw

from pipesim.costs.columns import Number
from pipesim.costs.memory import ELEMENT_BYTES, OPTIMIZER_BYTES

TIMES = ("useful", "checkpoints", "lost", "restarts")
"""Where the time goes: these sum to the whole."""


def system_mtbf_s(gpu_mtbf_s: Number, gpus: Number) -> Number:
    """Seconds between failures of a job that one failing GPU (with its share of all else) stops: M = M_gpu / n.

    Failures of n parts that are independent and without memory come n times as often.
    """
    return gpu_mtbf_s / gpus


def checkpoint_bytes(parameters: Number) -> Number:
    """What has to be read to go on: 16-bit weights and Adam's fp32 master weights and moments, 14 bytes a parameter.

    BLOOM's 176.2B parameters: 329 GiB of weights, "2.3 TB" in all (BigScience, model page of 2022). Left out: the state
    of the data loader, copies kept in case.
    """
    return parameters * (ELEMENT_BYTES + OPTIMIZER_BYTES)


def young_interval_s(checkpoint_s: Number, mtbf_s: Number) -> Number:
    """tau = sqrt(2 delta M): between two checkpoints, where the checkpoint delta is much shorter than M.

    Source: Young, "A First Order Approximation to the Optimum Checkpoint Interval", Comm. ACM 17(9), 1974.
    """
    return np.sqrt(2 * checkpoint_s * mtbf_s)


def daly_interval_s(checkpoint_s: Number, mtbf_s: Number) -> Number:
    """tau = sqrt(2 delta M) (1 + sqrt(x) / 3 + x / 9) - delta with x = delta / 2M; M itself where delta >= 2M.

    Source: Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22, 2006, equation 37.
    """
    x = checkpoint_s / (2 * mtbf_s)
    series = np.sqrt(2 * checkpoint_s * mtbf_s) * (1 + np.sqrt(x) / 3 + x / 9) - checkpoint_s
    return np.where(x < 1, series, mtbf_s)[()]


def best_interval_s(checkpoint_s: Number, mtbf_s: Number) -> Number:
    """The exact optimum of Daly's exponential model, seconds of work between two checkpoints; restarts do not matter.

        (1 - tau / M) exp(tau / M) = exp(-delta / M), so tau = M (1 + W(-exp(-1 - delta / M)))

    W is Lambert's function (its principal branch). Source: Daly 2006, section 3, there solved by a series.
    """
    share = checkpoint_s / mtbf_s
    exact = mtbf_s * (1 + lambertw(-np.exp(-1 - share)).real)
    no_digit_left = share < 1e-8  # of 1 + W, by rounding
    return np.where(no_digit_left, daly_interval_s(checkpoint_s, mtbf_s), exact)[()]


def times_s(
    useful_s: Number, interval_s: Number, checkpoint_s: Number, mtbf_s: Number, restart_s: Number
) -> dict[str, Number]:
    """Expected seconds by item of ``TIMES`` until ``useful_s`` of work are done, if failures are exponential.

        total = M exp(R / M) (exp((tau + delta) / M) - 1) useful / tau

    M      mtbf_s         seconds between failures of the whole job
    R      restart_s      from a failure until work goes on; it may fail too
    tau    interval_s     of work between two checkpoints
    delta  checkpoint_s   that work stands still for each

    A failure loses all work since the last checkpoint. The total is split by who spends it: n = exp((tau + delta) / M) - 1
    failed tries an interval, which lose n M - tau - delta and restart for n M (exp(R / M) - 1).
    Source: Daly 2006, equation 20. Leaves out: the time to notice a failure (put it into R), planned stops, checkpoints
    that are written beside the work (put in only what stands still), failed checkpoints.
    """
    segments, period = useful_s / interval_s, (interval_s + checkpoint_s) / mtbf_s
    with np.errstate(over="ignore"):  # an interval of thousands of failures never ends
        tries = np.expm1(period) * mtbf_s
        return {
            "useful": useful_s,
            "checkpoints": segments * checkpoint_s,
            "lost": segments * (tries - period * mtbf_s),
            "restarts": segments * tries * np.expm1(restart_s / mtbf_s),
        }


def useful_share(interval_s: Number, checkpoint_s: Number, mtbf_s: Number, restart_s: Number) -> Number:
    """Useful / total of ``times_s``."""
    return 1 / sum(times_s(1.0, interval_s, checkpoint_s, mtbf_s, restart_s).values())


def expected_loss(parameters: Number, tokens: Number) -> Number:
    """Nats a token after training on so many tokens: ((N_c / N) ** (a_N / a_D) + D_c / D) ** a_D.

    a_N = 0.076, a_D = 0.103, N_c = 6.4e13 parameters without embeddings, D_c = 1.8e13 tokens of WebText2.
    Source: Kaplan et al., "Scaling Laws for Neural Language Models", 2020, equation 1.5 and Table 2.
    """
    return ((6.4e13 / parameters) ** (0.076 / 0.103) + 1.8e13 / tokens) ** 0.103


def critical_batch_tokens(loss: Number) -> Number:
    """The batch at which a step does half of what it could and costs twice the tokens: 2e8 tokens * L ** (-1 / 0.21).

    Source: Kaplan et al. 2020, equation 1.4, after McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.
    Limits: fitted to models below 1.5B parameters, SGD noise of one data set; Zhang et al., "How Does Critical Batch Size
    Scale in Pre-training?", 2024, find that it grows with the tokens trained on and hardly with the model.
    """
    return 2e8 * loss ** (-1 / 0.21)
