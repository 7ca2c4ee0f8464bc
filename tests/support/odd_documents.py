"""Documents with what the golden ones lack, for golden pages: code, odd sides, machines that tell little."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from documents import diff_with_code, golden

from tests.compare.test_diff import golden as golden_cubin
from tritonhook.report.result import Result
from tritonhook.report.results.file import File, GpuFile

_ORIGINS = '#loc = loc("/src/k.py":1:0)\n%0 = math.exp %x loc(#loc1)\n#loc1 = loc("/src/k.py":5:3)\n'


def _as_json(result: Result) -> dict[str, Any]:
    return json.loads(json.dumps(result.document()))  # type: ignore[no-any-return]


def ab_of_a_shared_gpu() -> dict[str, Any]:
    """Three processes, a baseline, slow blocks, an outlier, clocks known at times, a control that is neither side."""
    document = golden("ab")
    document |= {
        "baselines": {"aten": "output 0 differs"},
        "code": {"attention_kernel": "only scheduling differs"},
        "control_of": None,
        "device": None,
        "flushes": None,
        "notes": ["a note"],
        "outputs": 0,
        "stopped": "time",
        "tuning": {"mode": "each", "sides": {"reference": {"k": "B: 1"}, "candidate": {"k": "B: 2"}}},
    }
    document["sides"]["candidate"] |= {"copies": 3, "graph": False, "why_eager": "it synchronises"}
    kernels = document["kernels"]
    kernels["reference"] = {"a_same": [{"code": "1", "registers": 8, "stack": 16}]} | kernels["reference"]
    kernels["candidate"]["a_same"] = kernels["reference"]["a_same"]
    for n, block in enumerate(document["blocks"]):
        block["process"] = n // 8
        block["times_us"]["aten"] = [2000.0 + n + i / 8 for i in range(5)]
        clock = None if n % 4 == 3 else 1700 + 10 * n
        slowed = ["HW slowdown"] if n % 9 == 4 else []
        block["conditions"] |= {
            "sm_clock_mhz": clock,
            "temperature_c": 60,
            "power_w": None,
            "slowed": slowed,
            "power_capped": n % 5 == 0,
            "other_processes": n % 3,
        }
        block["clock_mhz"] = {"reference": 1900.0 + n, "candidate": 1950.0}
    document["blocks"][0]["times_us"]["reference"][2] = 9000.0
    return document


def capture_with_code() -> dict[str, Any]:
    """Machine code with source lines, and two texts."""
    return golden("capture") | {
        "code": diff_with_code()["code"]["b"],
        "artifacts": {"ttir": _ORIGINS, "ptx": ".entry k\nret;\n\0"},
    }


def captures_of_many_processes() -> dict[str, Any]:
    """Kernels for five targets by three ptxas, spilled, renamed, tuned and cached; a failed and two damaged ones."""
    document = golden("captures")
    first = document["kernels"][0]
    document["kernels"] = []
    for n, (arch, ptxas) in enumerate(
        [("sm_80", "12.8.93"), ("sm_90a", "13.0.48"), ("sm_90a", None), ("sm_100a", "13.5.37"), ("sm_120a", "12.8.93")]
    ):
        kernel = copy.deepcopy(first) | {"id": f"{n:06x}", "record": f"k-{n}", "arch": arch}
        kernel["ptxas"]["version"] = ptxas
        kernel["resources"] |= {
            "code_bytes": 4096 >> n,
            "spill_stores": 4 * n,
            "spill_loads": 8 * n,
            "registers": 9 + n,
        }
        kernel["seen"] = [
            first["seen"][0] | {"rank": str(m), "cache_hit": m < n, "compile_us": {"ttir": 900 + m, "cubin": 90_000}}
            for m in range(3)
        ]
        document["kernels"].append(kernel)
    document["kernels"][1] |= {"rewritten_from": "plain_kernel", "trigger": {"name": True, "pragma": True}}
    document["kernels"][2] |= {"resources": None, "note": "cut short"}
    document["kernels"][3] |= {"stages": ["ptx"], "resources": None}
    document["kernels"][3]["options"] |= {"maxnreg": 64, "num_ctas": 2, "constants": {"BLOCK": 256, "NONE": None}}
    tuning = {"among": ["k-0", "k-1", "k-4"], "by": "Triton", "process": "p"}
    document["tunings"] = [tuning | {"winner": winner} for winner in ("k-0", "k-0", "k-1")]
    document["tunings"].append(tuning | {"winner": "k-3", "among": []})
    failed = {"id": "ffffff", "kernel": "bad_kernel", "arch": "sm_90a", "by": "ptxas 12.8.93", "error": "line 3: no"}
    document |= {
        "failed": [failed | {"time_ns": 1, "path": "/caps/failed/bad"}],
        "damaged": [{"record": f"k-{n}", "error": "capture.json is cut short"} for n in (7, 8)],
        "torn_lines": 2,
        "hidden": 1,
        "notes": ["a note"],
        "processes": [*document["processes"], {"host": "h", "argv": "one word"}],
    }
    return document


def diff_without_code() -> dict[str, Any]:
    """Another scheduler and another number of registers; loops on one side only."""
    document = diff_with_code("sm_100a.tcgen05.plain", "sm_100a.tcgen05.cutlass")
    del document["code"]
    registers = next(item for item in document["resources"] if item["field"] == "registers")
    registers |= {"a": 100, "b": 125}
    (loop,) = diff_with_code()["sass"]["loops"]
    document["sass"]["loops"] = 9 * [{"a": loop["a"], "b": None}, {"a": None, "b": loop["b"]}, loop]
    return document


def file_with_code() -> dict[str, Any]:
    """Two modules with loops, functions of the driver, limits of threads and shared memory."""
    cubins, code = zip(*map(golden_cubin, ("sm_90a.module", "sm_120a.tensor_load.cluster")), strict=True)
    return _as_json(File.of(GpuFile("k.fatbin", "fat binary", cubins, code, "12.8.93", ["a note"]), full=True))


def memory_of_many_marks() -> dict[str, Any]:
    """More marks than flags, some in one place; memory that shrinks; a second GPU without samples."""
    document = golden("memory")
    timeline = document["timelines"][0]
    load, launch, _ = timeline["marks"]
    for n in range(16):
        mark = copy.deepcopy(load if n % 2 else launch) | {"t_ns": 10**9 + n * n * 4 * 10**6, "kernel": f"kernel_{n}"}
        mark["before"]["stack_limit_bytes"] = mark["after"]["stack_limit_bytes"] = 14512
        mark["before"]["free_bytes"] = mark["after"]["free_bytes"] + (n - 2 << 20)
        timeline["marks"].append(mark)
    timeline["marks"][-1] |= {"after": None, "note": "the context was lost"}
    timeline["marks"][-2]["after"]["stack_limit_bytes"] = 20000
    for sample in timeline["samples"]:
        sample["used_bytes"] //= 4
    timeline["start"]["used"]["NVML"] += 6 << 30
    blind = copy.deepcopy(timeline) | {"samples": [], "total_bytes": None, "resident_threads": None, "device": "GPU-1"}
    blind |= {"torch_peak_allocated_bytes": None, "torch_peak_reserved_bytes": None, "marks": [load], "notes": ["n"]}
    blind["start"] = {"used": {}, "others_bytes": None, "reading": None}
    document["timelines"].append(blind)
    return document


ODD: Mapping[str, Callable[[], dict[str, Any]]] = {
    "ab_of_a_shared_gpu": ab_of_a_shared_gpu,
    "capture_with_code": capture_with_code,
    "captures_of_many_processes": captures_of_many_processes,
    "diff_with_code": diff_with_code,
    "diff_without_code": diff_without_code,
    "file_with_code": file_with_code,
    "memory_of_many_marks": memory_of_many_marks,
}
