"""From the keys of ``task.profile`` to what was measured, the files of a cluster and a stack, and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipesim import config as configs
from pipesim.execute import profile, profile_links
from pipesim.execute.profile import Device, Kernels
from pipesim.execute.profile_links import Message
from pipesim.specs import CostConstants
from pipesim.tasks import Done
from pipesim.tasks.profile.fit import Fitted, fit, machine, products_s, refuse_absurd
from pipesim.tasks.profile.page import ELEMENT_BYTES, Told, page

Conf = Mapping[str, Any]

DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
PRECISION = "bf16"
"""What predictions are made for; a peak that is measured is written for fp16 too."""


def run(config: Conf, device: Device, date: str) -> Done:
    """Measures, fits and tells. Errors as ``tasks.profile.task.profile``."""
    asked = config["task"]["profile"]
    kernels, messages = _measured(asked, device)
    source = _source(asked, device, date)
    cluster = _blank(config["cluster"], asked, device)
    costs = configs.build_costs(config["costs"])
    on = machine(configs.build_cluster(cluster), configs.build_stack(config["stack"]), costs, PRECISION)
    fitted = fit(kernels, messages, on, peak_is_known=device.kind == "cuda")
    cluster = _cluster(cluster, fitted, costs, device) | {"name": asked["name"], "source": source}
    stack = _stack(config["stack"], fitted, cluster["chip"]) | {
        "name": asked["name"], "source": f"matrix products {source}; the rest as stack={config['stack']['name']}",
    }  # fmt: skip
    costs = fitted.costs
    told = Told(
        name=asked["name"], source=source, device=device, dtype=DTYPES[device.kind], kernels=kernels, messages=messages,
        fitted=fitted, cluster=configs.build_cluster(cluster), stack=configs.build_stack(stack), costs=costs,
        base=config["stack"]["name"],
    )  # fmt: skip
    refuse_absurd(kernels.products, products_s(kernels.products, told.on, ELEMENT_BYTES[told.dtype]))
    files: dict[str, str | bytes] = {
        f"conf/cluster/{asked['name']}.yaml": _yaml(cluster), f"conf/stack/{asked['name']}.yaml": _yaml(stack),
    }  # fmt: skip
    if device.kind == "cpu":
        own = {
            "gemm_inner_half_dim": _rounded(costs.gemm_inner_half_dim),
            "collective_start_us": _rounded(costs.collective_start_s * 1e6), "source": source,
        }  # fmt: skip
        files[f"conf/costs/{asked['name']}.yaml"] = _yaml(dict(config["costs"]) | own)
    return Done(document=page(told), files=files)


def _measured(asked: Conf, device: Device) -> tuple[Kernels, tuple[Message, ...]]:
    sizes, threads = asked[device.kind], asked["threads"]
    kernels = profile.kernels(
        device.kind, DTYPES[device.kind], products=sizes["products"], lengths=sizes["lengths"], heads=sizes["heads"],
        head_dim=sizes["head_dim"], copied_bytes=sizes["copied_bytes"], repeats=asked["repeats"], threads=threads,
    )  # fmt: skip
    if device.kind == "cuda" and device.count < 2:
        return kernels, ()
    messages = profile_links.messages(
        device.kind, sizes["message_bytes"], repeats=asked["repeats"], threads=threads, timeout_s=asked["timeout_s"]
    )
    return kernels, messages


def _source(asked: Conf, device: Device, date: str) -> str:
    threads = f", {asked['threads']} thread{'s' * (asked['threads'] > 1)} a process" if device.kind == "cpu" else ""
    return f"measured on {device.name}{threads}, {DTYPES[device.kind]}, {date}"


def _blank(cluster: Conf, asked: Conf, device: Device) -> dict[str, Any]:
    """The cluster before anything is known of its speed: the chosen one of GPUs, or processes of this CPU."""
    if device.kind == "cuda":
        return dict(cluster) | {"multiprocessors": device.multiprocessors}
    processes = max(1, device.count // asked["threads"])
    return {
        "name": "cpu", "chip": "cpu", "gpus": processes, "gpus_per_node": processes, "peak_tflops": {"bf16": 1.0, "fp16": 1.0},
        "multiprocessors": asked["threads"], "flash_efficiency": {"flash": 1.0},
        "memory_gb": _rounded(device.memory_bytes / processes / 1e9), "hbm_gb_per_s": 1.0,
        "intra_node_gb_per_s": 1.0, "intra_node_latency_us": 0.0, "inter_node_gb_per_s": 1.0,
        "inter_node_latency_us": 0.0, "network_decay": 0.0, "network_flat_nodes": 1.0,
        "watts_per_gpu": None, "usd_per_gpu_hour": None, "source": "",
    }  # fmt: skip


def _cluster(cluster: Conf, fitted: Fitted, costs: CostConstants, device: Device) -> dict[str, Any]:
    """With what was fitted. Bandwidths are written so that they, times the shared efficiencies, are those measured."""
    told = dict(cluster) | {
        "flash_efficiency": {**cluster["flash_efficiency"], "flash": _rounded(fitted.flash_efficiency)},
        "hbm_gb_per_s": _rounded(fitted.hbm_bytes_per_s / costs.hbm_efficiency / 1e9),
    }
    if fitted.peak_flops_per_s is not None:
        told["peak_tflops"] = dict.fromkeys(cluster["peak_tflops"], _rounded(fitted.peak_flops_per_s / 1e12))
    if fitted.all_reduce is not None and fitted.send is not None:
        bandwidth, latency_us = fitted.all_reduce.bytes_per_s / 1e9, _rounded(fitted.send.latency_s * 1e6)
        told |= {
            "intra_node_gb_per_s": _rounded(bandwidth / costs.intra_node_efficiency),
            "intra_node_latency_us": latency_us,
        }
        if device.kind == "cpu":  # the machine is its only node
            told |= {
                "inter_node_gb_per_s": _rounded(bandwidth / costs.inter_node_efficiency),
                "inter_node_latency_us": latency_us,
            }
    return told


def _stack(stack: Conf, fitted: Fitted, chip: str) -> dict[str, Any]:
    return dict(stack) | {"gemm_efficiency": {**stack["gemm_efficiency"], chip: _rounded(fitted.gemm_efficiency)}}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _yaml(values: Conf) -> str:
    """JSON is YAML; one key a line."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
