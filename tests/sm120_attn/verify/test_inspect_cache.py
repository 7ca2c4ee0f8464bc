"""What the assembler makes of the kernels over a cache: no spills, and pinned counts. Assembled for sm_120a."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
pytest.importorskip("tritonhook.cubin.sass", reason="machine code is read with tritonhook")

from repository import GOLDEN

from sm120_attn.compile.compiler import compile_offline
from sm120_attn.config import Config
from sm120_attn.kernels.append.config import AppendConfig
from sm120_attn.kernels.decode.config import DecodeConfig
from sm120_attn.kv_cache.planner import CacheShape, plan_cache
from sm120_attn.verify.inspect import read_codes
from tests.sm120_attn.support.pinned import ALL

LOOPS = GOLDEN / "sm120" / "cache_loops.json"
BASE = CacheShape("sm_120a", "bf16", 128, batch=4, heads=32, heads_kv=8, seqlen_q=1, capacity=32768, sms=170)
SHAPES = {
    "decode": replace(BASE, page_size=16, lse=True),
    "decode, contiguous, whole": replace(BASE, batch=85),
    "decode, 32 rows": replace(BASE, page_size=64, seqlen_q=8),
    "decode, D64": replace(BASE, page_size=16, head_dim=64),
    "decode, D256, all options": replace(
        BASE, page_size=16, head_dim=256, seqlen_q=4, window=True, softcap=True, varlen=True, sinks=True, lse=True
    ),
    "decode, FP8 cache": replace(BASE, page_size=16, kv_dtype="e4m3"),
    "decode, FP8 cache, 32 rows": replace(BASE, page_size=16, seqlen_q=8, kv_dtype="e4m3", sinks=True),
    "decode, NVFP4 cache": replace(BASE, page_size=16, kv_dtype="nvfp4"),
    "decode, NVFP4 cache, pages of 64": replace(BASE, page_size=64, kv_dtype="nvfp4", batch=64),
    "decode, NVFP4 cache, 16 rows": replace(BASE, page_size=16, seqlen_q=3, kv_dtype="nvfp4"),
    "decode, NVFP4 cache, D256, all options": replace(
        BASE, page_size=64, head_dim=256, kv_dtype="nvfp4", window=True, softcap=True, varlen=True, sinks=True, lse=True
    ),
    "decode, NVFP4 cache, 32 rows": replace(BASE, page_size=16, seqlen_q=8, kv_dtype="nvfp4", sinks=True),
    "decode, MXFP8 cache, 32 rows": replace(BASE, page_size=16, seqlen_q=8, kv_dtype="mxfp8"),
    "prefill, pages of 16": replace(BASE, page_size=16, seqlen_q=4096),
    "prefill, pages of 64, packed": replace(BASE, page_size=64, seqlen_q=4096, varlen=True, sinks=True),
    "prefill, contiguous, D64": replace(BASE, seqlen_q=4096, head_dim=64),
    "prefill, FP8 cache": replace(BASE, page_size=64, seqlen_q=4096, kv_dtype="e4m3"),
    "prefill, FP8 cache, D64, all options": replace(
        BASE,
        page_size=16,
        seqlen_q=4096,
        head_dim=64,
        kv_dtype="e4m3",
        window=True,
        softcap=True,
        varlen=True,
        sinks=True,
        lse=True,
    ),
    "prefill, FP8 cache, D256": replace(BASE, seqlen_q=4096, head_dim=256, kv_dtype="e4m3"),
    "prefill, FP8 cache, two warps to a row": replace(
        BASE, page_size=16, seqlen_q=130, batch=1, capacity=500, kv_dtype="e4m3"
    ),
}
APPENDS = {
    "append": AppendConfig(paged=True),
    "append, rotary": AppendConfig(rotary="half", paged=True),
    "append, NVFP4 cache": AppendConfig(kv_dtype="nvfp4", rotary="half", paged=True),
    "append, FP8 cache, all options": AppendConfig(
        kv_dtype="e4m3", rotary="interleaved", table_dtype="fp32", varlen=True, paged=True
    ),
}


# What `make test` looks at: one of each kind, as compiling all takes minutes; `make test-cute-matrix` looks at all.
ALWAYS = ("decode", "prefill, pages of 16", "append")
CHOSEN = {name: shape for name, shape in SHAPES.items() if ALL or name in ALWAYS}


@pytest.fixture(scope="module")
def found() -> dict:
    """By shape: ptxas's version, and of each kernel its resources and loops."""
    return {name: record(plan_cache(shape).config) for name, shape in CHOSEN.items()}


@pytest.fixture(scope="module")
def appends() -> dict:
    return {name: record(config) for name, config in APPENDS.items() if ALL or name in ALWAYS}


def record(config: Config | DecodeConfig | AppendConfig) -> dict:
    assembled = compile_offline(config)
    kernels = [
        {
            "instructions": len(code.instructions), "registers": code.registers, "stack": code.stack_bytes,
            "local": code.count("LDL", "STL"), "LDGSTS": code.count("LDGSTS"), "UTMALDG": code.count("UTMALDG"),
            "syscalls": code.syscalls,
            "loops": [[len(x.instructions), x.matrix, x.opcodes["LDSM"], x.opcodes["MUFU"]] for x in code.loops],
        }
        for code in read_codes(assembled.cubin)
    ]  # fmt: skip
    return {"ptxas": assembled.ptxas, "kernels": kernels}


def test_nothing_is_spilled(found: dict, appends: dict) -> None:
    for name, shape in (found | appends).items():
        for kernel in shape["kernels"]:
            assert kernel["local"] == kernel["stack"] == kernel["syscalls"] == 0, name


def test_a_split_has_a_second_kernel(found: dict) -> None:
    assert {name: len(shape["kernels"]) for name, shape in found.items()} == {
        name: 2 if plan_cache(shape).split else 1 for name, shape in CHOSEN.items()
    }
    assert {len(shape["kernels"]) for shape in found.values()} == {1, 2}


def test_pages_are_loaded_by_tma_for_prefill_and_by_cp_async_for_decode(found: dict) -> None:
    for name, shape in found.items():
        main = max(shape["kernels"], key=lambda kernel: kernel["instructions"])
        assert (main["UTMALDG"] > 0, main["LDGSTS"] > 0) == (name.startswith("prefill"), name.startswith("decode")), (
            name
        )


def test_a_kernel_that_appends_needs_few_registers(appends: dict) -> None:
    """So that an SM holds 12 CTAs of it."""
    assert all(kernel["registers"] <= 40 for shape in appends.values() for kernel in shape["kernels"])


def test_the_counts_are_the_pinned_ones(found: dict, appends: dict) -> None:
    """Renew on purpose: RENEW_GOLDEN=1 pytest THIS_FILE, and say in the commit why."""
    found = found | appends
    if os.environ.get("RENEW_GOLDEN"):
        lines = ",\n ".join(f"{json.dumps(name)}: {json.dumps(shape)}" for name, shape in found.items())
        LOOPS.write_text(f"{{{lines}}}\n")
    wanted = json.loads(LOOPS.read_text())
    versions = [{shape["ptxas"] for shape in shapes.values()} for shapes in (found, wanted)]
    if versions[0] != versions[1]:
        pytest.skip(f"pinned for ptxas {versions[1]}, the DSL has {versions[0]}")
    assert wanted.keys() == SHAPES.keys() | APPENDS.keys()
    assert found == {name: wanted[name] for name in found}
