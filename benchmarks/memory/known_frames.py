"""Experiments E1 to E7 of pool.py: kernels of known frames. Each returns JSON values."""

from __future__ import annotations

from typing import Any

from benchmarks.memory.gpu_bench import Bench, grown
from tritonhook.device.cuda_driver import CudaError
from tritonhook.memory.prediction import MIB, net_growth


def e1(b: Bench, frame: int) -> dict[str, Any]:
    """No-op kernel, then one of the frame: growth against the prediction."""
    b.start()
    _, predicted, load, launch = b.first_launch(frame)
    error = abs(launch["mib"] - predicted) / predicted if predicted else None
    return {"frame": frame, "predicted_mib": predicted, "load": load, **launch, "error_ratio": error}


def e3(b: Bench) -> dict[str, Any]:
    """High-water mark: 8,192, then 4,096, then 16,384."""
    b.start()
    steps = []
    for frame in (8192, 4096, 16384):
        *_, launch = b.first_launch(frame)
        steps.append({"frame": frame, "predicted_mib": net_growth(frame, b.gpu, launch["limit"][0]) / MIB, **launch})
    return {"steps": steps}


def e7(b: Bench, factor: float) -> dict[str, Any]:
    """The edge: leave `factor` times the predicted growth free, then launch."""
    b.start()
    function, _, predicted = b.frame(14608)
    wanted = int(predicted * factor) // (2 * MIB) * 2 * MIB
    filling = b.driver.memory()[0] - wanted
    b.driver.allocate(filling // (2 * MIB) * 2 * MIB)
    before = b.look()
    code = 0
    try:
        b.launch_frame(function)
        b.driver.synchronize()
    except CudaError as error:
        code = error.code
    return {
        "factor": factor,
        "free_before_mib": before["free"] / MIB,
        "predicted_mib": predicted / MIB,
        "result": code,
        **grown(before, b.look()),
    }
