"""`check` for sm_120a without a GPU: each kernel, launched by its host code, is emulated from its PTX and judged by
float64; FP8 by the bits of the replay, too. Kernels with a mistake are refused.

A process runs several, as its imports take seconds. test_emulated.py compares machine code with PTX.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from dry_runs import run_dry

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.verify.cache_cases import CacheCase
from sm120_attn.verify.cases import Case
from sm120_attn.verify.check_quantize import QuantizeCase
from tests.sm120_attn.mutants import MISTAKES

ONE: dict[str, Any] = {"batch": 1, "heads": 2, "heads_kv": 1, "head_dim": 64}
FP8: dict[str, Any] = ONE | {"dtype": "e4m3", "out_dtype": "bf16", "mask": "causal"}
CACHED: dict[str, Any] = {"page_size": 16, "kv_dtype": "e4m3", "descale": "head"}
CASES: list[Any] = [
    Case("window, softcap, sinks, D72", 60, 90, mask="window", window=(20, 5), softcap=5.0, sinks=True,
         **ONE | {"head_dim": 72}),
    Case("portable FP8, float32", 40, 150, fp8_mma="portable", descale="head", **FP8 | {"out_dtype": "fp32"}),
    Case("two levels of sums", 16, 2100, **FP8 | {"mask": "none", "heads": 1}),
    Case("packed", lengths=((12, 12), (20, 40)), mask="causal", **ONE),
    CacheCase("decode, bf16", (77, 20), page_size=16, softcap=4.0, sinks=True),
    CacheCase("decode, e4m3", (77, 20), **CACHED),
    CacheCase("append, half, e4m3", (5, 0, 15), heads=2, heads_kv=1, new=2, queries=2, rotary="half", **CACHED),
    CacheCase("append, packed, interleaved, table in float32", (5, 3, 15), (1, 0, 3), new=1, heads=3, heads_kv=3,
              head_dim=48, rotary="interleaved", rotary_columns=32, table_dtype="fp32", dtype="fp16"),
    CacheCase("decode in three parts", (300, 20), page_size=16, num_splits=3),
    QuantizeCase("quantised", 1, 130, heads=2, head_dim=72),
]  # fmt: skip
AT_NIGHT: list[Any] = [
    Case("cp.async", 40, 70, kernel="cp_async", mask="causal", **ONE),
    Case("plain FP8, other tiles", 40, 150, fp8_mma="plain", kernel="tiles 1", **FP8),
    *(Case(f"FP8 D{d}, {mma}", 70, 150, fp8_mma=mma, **FP8 | {"head_dim": d})
      for d in (40, 80, 128, 192) for mma in ("native", "plain", "portable")),
    *(Case(f"{mask}, D{d}", 130, 200, mask=mask, window=(70, 3), dtype="fp16", **ONE | {"head_dim": d})
      for d in (32, 128, 256) for mask in ("none", "causal", "window")),
    *(CacheCase(f"D{d} of {kind}, {queries} queries", (100, 33), queries, 4, head_dim=d, page_size=16,
                kv_dtype=kind, descale="head" if kind == "e4m3" else "")
      for d in (64, 80, 128, 256) for kind in ("", "e4m3") for queries in (1, 5)),
    *(CacheCase(f"append {new} {rotary}, {kind}", (5, 0, 15), 2, 3, 1, new=new, page_size=page,
                rotary=rotary, kv_dtype=kind, causal=causal)
      for rotary in ("", "half", "interleaved") for kind in ("", "e4m3")
      for new, page, causal in ((1, 16, True), (3, 0, False))),
    *(QuantizeCase(f"quantised, {whole}, {dtype}", 1, 300, heads=2, dtype=dtype, whole=whole)
      for whole in (True, False) for dtype in ("bf16", "fp32")),
]  # fmt: skip
NIGHTLY = "NIGHTLY" in os.environ
WRONG = list(MISTAKES)[: len(MISTAKES) if NIGHTLY else 1]

SCRIPT = """
import json
from sm120_attn.verify import cache_calls, check_quantize, hardware_probes, judging
from sm120_attn.verify.cache_cases import CacheCase
from sm120_attn.verify.cases import Case
from sm120_attn.verify.check_quantize import QuantizeCase
from tests.sm120_attn.mutants import broken_kernels

found, broken = {}, broken_kernels()
for case in ALL_CASES:
    judged = {Case: judging, CacheCase: cache_calls, QuantizeCase: check_quantize}[type(case)].check(case)
    found[case.name] = judged if isinstance(judged, str) else judged.why
for name in ALL_MISTAKES:
    found[name] = broken[name]().why
    hardware_probes.PRODUCTS = 8
    found["probes"] = hardware_probes.lane_map("sm_120a"), hardware_probes.mma("sm_120a", "e4m3")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    told: dict[str, Any] = {}
    cases = CASES + AT_NIGHT * NIGHTLY
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SM120_ATTN_CACHE", "off")  # what comes from a cache has no PTX
        for first in range(0, len(cases), 5):  # on a busy machine more would look like a hang
            folder = tmp_path_factory.mktemp("checks")
            patch.setenv("CUTE_DSL_CACHE_DIR", str(folder / "cache"))
            script = SCRIPT.replace("ALL_CASES", repr(cases[first : first + 5]))
            script = script.replace("ALL_MISTAKES", repr(WRONG[first // 5 : first // 5 + 1]))
            told |= json.loads(run_dry(folder, script, "--emulate", arch="sm_120a").stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    "name", [case.name for case in CASES] + [pytest.param(case.name, marks=pytest.mark.nightly) for case in AT_NIGHT]
)
def test_a_kernel_passes_its_check(found: dict[str, Any], name: str) -> None:
    assert found[name] == ""


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.nightly] * (i > 0)) for i, x in enumerate(MISTAKES)]
)
def test_a_kernel_with_a_mistake_is_refused(found: dict[str, Any], name: str) -> None:
    assert found[name] != ""


def test_the_probes_find_what_the_kernels_assume(found: dict[str, Any]) -> None:
    lanes, product = found["probes"]
    assert all(lanes.values()) and product["passed"], found["probes"]
