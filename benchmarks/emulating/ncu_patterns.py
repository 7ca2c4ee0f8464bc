"""Ask Nsight Compute on a GPU for what the emulator's counters have no evidence of: its counters of small access
patterns, for each instruction and in total, twice. Makes DATA of counters_h100.py.

    python benchmarks/emulating/ncu_patterns.py OUT.json.xz      # needs a GPU, ncu, nvcc's ptxas and the CUDA driver

Patterns: loads of 8 and 16 bytes whose addresses repeat, atomics of shared and of global memory with duplicates, local
memory, generic accesses, copies by LDGSTS of each size with lanes turned off, LDSM and STSM with row strides.
"""

from __future__ import annotations

import csv
import ctypes
import json
import lzma
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

BYTES, GRID, BLOCK = 1 << 20, [2, 1, 1], [256, 1, 1]
_HEAD = """.version 8.0
.target {arch}
.address_size 64
.visible .entry k(.param .u64 o){{
.reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<4>; .shared .align 128 .b8 m[32768]; .local .align 16 .b8 l[512];
ld.param.u64 %rd1,[o]; cvta.to.global.u64 %rd1,%rd1; mov.u32 %r1,%tid.x; and.b32 %r2,%r1,31; mov.u32 %r20,m;
mad.lo.u32 %r3,%r1,64,0; cvt.u64.u32 %rd2,%r3; add.u64 %rd2,%rd1,%rd2; {index} add.u32 %r5,%r20,%r4;
cvt.u64.u32 %rd3,%r4; add.u64 %rd3,%rd1,%rd3; st.shared.b32 [%r20],%r1; bar.sync 0;
{body}
st.global.v4.b32 [%rd2],{{%r6,%r7,%r8,%r9}}; ret; }}
"""
_INDEX = {  # byte offsets, in %r4
    "pairs": "shr.u32 %r4,%r2,1; mul.lo.u32 %r4,%r4,{s};",
    "twos": "shr.u32 %r10,%r2,2; and.b32 %r11,%r2,1; mad.lo.u32 %r4,%r10,2,%r11; mul.lo.u32 %r4,%r4,{s};",
    "halves": "and.b32 %r4,%r2,15; mul.lo.u32 %r4,%r4,{s};",
    "quarters": "and.b32 %r4,%r2,7; mul.lo.u32 %r4,%r4,{s};",
    "some": "xor.b32 %r4,%r2,5; mul.lo.u32 %r4,%r4,{s}; and.b32 %r4,%r4,16383;",
    "each": "mul.lo.u32 %r4,%r2,{s};",
}
_METRICS = (
    *(f"smsp__{one}.sum" for one in ("inst_executed", "thread_inst_executed", "thread_inst_executed_pred_on")),
    *(f"smsp__inst_executed_op_{space}_{how}.sum" for space in ("global", "shared") for how in ("ld", "st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_{one}.sum" for one in (
        *(f"global_op_{how}" for how in ("ld", "st", "atom", "red")), "local_op_ld", "local_op_st")),
    *(f"l1tex__t_requests_pipe_lsu_mem_{one}.sum" for one in ("global_op_ld", "global_op_st", "local_op_ld")),
    *(f"l1tex__data_{what}_pipe_lsu_mem_shared_op_{how}.sum"
      for what in ("bank_conflicts",) for how in ("ld", "st", "atom")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{how}.sum" for how in ("ld", "st", "atom")),
    "sm__inst_executed_pipe_tensor.sum",
)  # fmt: skip
_ZERO = "mov.u32 %r6,0; mov.u32 %r7,0; mov.u32 %r8,0; mov.u32 %r9,0; "
_ODD = "and.b32 %r12,%r2,1; setp.eq.u32 %p1,%r12,0; "
_COPY = "cp.async.{c}.shared.global [%r5],[%rd3],{n};"
_BODIES = {
    "lds8": (8, "ld.shared.v2.b32 {%r6,%r7},[%r5];"),
    "lds16": (16, "ld.shared.v4.b32 {%r6,%r7,%r8,%r9},[%r5];"),
    "sts8": (8, "st.shared.v2.b32 [%r5],{%r1,%r2};"),
    "sts16": (16, "st.shared.v4.b32 [%r5],{%r1,%r2,%r1,%r2};"),
    "lds16odd": (16, _ODD + "@%p1 ld.shared.v4.b32 {%r6,%r7,%r8,%r9},[%r5];"),
    "atoms": (4, "atom.shared.add.u32 %r6,[%r5],%r2;"),
    "atoms_cas": (4, "atom.shared.cas.b32 %r6,[%r5],0,%r2;"),
    "atomg": (4, "atom.global.add.u32 %r6,[%rd3],%r2;"),
    "redg": (4, "red.global.add.u32 [%rd3],%r2;"),
    "redg_f": (4, "red.global.add.f32 [%rd3],0f3F800000;"),
    "local4": (4, "mov.u32 %r13,l; and.b32 %r14,%r4,508; add.u32 %r13,%r13,%r14; st.local.b32 [%r13],%r1; "
               "ld.local.b32 %r6,[%r13];"),
    "generic": (4, "cvta.global.u64 %rd4,%rd3; ld.b32 %r6,[%rd4]; st.b32 [%rd4],%r2;"),
    "copy4": (4, _COPY.format(c="ca", n=4) + "cp.async.wait_all;"),
    "copy8": (8, _COPY.format(c="ca", n=8) + "cp.async.wait_all;"),
    "copy16": (16, _COPY.format(c="ca", n=16) + "cp.async.wait_all;"),
    "copy16cg": (16, _COPY.format(c="cg", n=16) + "cp.async.wait_all;"),
    "copy16odd": (16, _ODD + "@%p1 " + _COPY.format(c="cg", n=16) + "cp.async.wait_all;"),
    "ldsm": (16, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6,%r7,%r8,%r9},[%r5];"),
    "stsm": (16, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5],{%r1,%r2,%r1,%r2};"),
}  # fmt: skip


def patterns(arch: str) -> dict[str, str]:
    """By name, the PTX."""
    found = {}
    for body, (size, text) in _BODIES.items():
        for index, code in _INDEX.items():
            if index in ("twos", "halves") and body[:3] not in ("lds", "sts"):
                continue  # only wide loads are told to join
            for stride in (size, 128):
                made = _HEAD.format(arch=arch, index=code.format(s=stride), body=_ZERO + text)
                found[f"{body}_{index}_{stride}"] = made
    return found


def launch_all(folder: Path) -> None:
    """Launch each cubin once; ncu watches this process."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def ok(error: int) -> None:
        assert not error, error

    device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    ok(cuda.cuInit(0))
    ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(BYTES)))
    for path in sorted(folder.glob("*.cubin")):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        ok(cuda.cuModuleLoadData(ctypes.byref(module), path.read_bytes()))
        ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k"))
        ok(cuda.cuMemsetD8_v2(at, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES)))
        given = (ctypes.c_void_p * 1)(ctypes.addressof(at))
        ok(cuda.cuLaunchKernel(function, *GRID, *BLOCK, 0, None, given, None))
        ok(cuda.cuCtxSynchronize())


def pages(folder: Path, number: int) -> tuple[list[list[dict[str, str]]], list[dict[str, str]]]:
    """The source page of each launch, and the raw page."""
    report = folder / f"run{number}"
    what = ["--section", "SourceCounters", "--metrics", ",".join(_METRICS)]
    program = [sys.executable, __file__, "--launch", folder]
    subprocess.run(["ncu", *what, "-f", "-o", report, *program], check=True)

    def page(name: str) -> list[list[str]]:
        command = ["ncu", "--import", f"{report}.ncu-rep", "--page", name, "--csv"]
        more = ["--print-source", "sass"] if name == "source" else []
        done = subprocess.run([*command, *more], check=True, capture_output=True, text=True)
        return list(csv.reader(done.stdout.splitlines()))

    header, _, *rows = page("raw")
    sources: list[list[dict[str, str]]] = []
    names: list[str] = []
    for row in page("source"):
        if "Source" in row and "Instructions Executed" in row:
            names = row
            sources.append([])
        elif sources and len(row) == len(names):
            one = dict(zip(names, row, strict=True))
            sources[-1].append({k: v for k, v in one.items() if v not in ("", "0")})
    return sources, [dict(zip(header, row, strict=True)) for row in rows]


def main(out: Path, arch: str = "sm_90a") -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, made = Path(place), []
        for name, ptx in sorted(patterns(arch).items()):
            (folder / f"{name}.ptx").write_text(ptx)
            done = subprocess.run(["ptxas", f"-arch={arch}", f"{name}.ptx", "-o", f"{name}.cubin"], cwd=folder)
            if not done.returncode:
                made.append(name)
        (sources, raw), (again, _) = pages(folder, 1), pages(folder, 2)
        found: list[dict[str, Any]] = []
        for number, name in enumerate(made):
            cubin = b64encode((folder / f"{name}.cubin").read_bytes()).decode()
            launch = {"entry": "k", "grid": GRID, "block": BLOCK, "dynamic_shared": 0, "parameters": [["buf", 0]]}
            launch["buffers"] = [{"bytes_per_element": 4, "zeros": BYTES}]
            same = {"same_in_second_run": sources[number] == again[number]}
            counted = {"launch_counters": raw[number], "instructions": sources[number]}
            found.append({"name": name, "cubin": cubin, **launch, **counted, **same})
    out.write_bytes(lzma.compress(json.dumps(found).encode()))
    print(len(found), "launches,", sum(one["same_in_second_run"] for one in found), "equal in both runs")


if __name__ == "__main__":
    launch_all(Path(sys.argv[2])) if sys.argv[1] == "--launch" else main(Path(sys.argv[1]))
