"""Ask Nsight Compute on a GPU for what the emulator's counters have no evidence of: its counters of small access
patterns and of captured kernels, for each instruction and in total, twice, with times. Makes DATA of counters_h100.py.

    python -m benchmarks.emulating.ncu_patterns OUT.json.xz [CAPTURES ...]     # needs a GPU, ncu and the CUDA driver
    python -m benchmarks.emulating.ncu_patterns --make FOLDER [CAPTURES ...]   # only the launches: needs no GPU

CAPTURES: folders that `tritonhook run --launches` made. Buffers hold what was recorded, or the same made-up numbers
everywhere (verify/contents.py).
"""

# ruff: noqa: E501 (lines of PTX)
from __future__ import annotations

import csv
import json
import lzma
import math
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tritonhook.capture.launches.record import Buffer, Descriptor, Launch, Pointer, Tiling, to_document
from tritonhook.capture.selection import Selected, selected
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.errors import TritonHookError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of

ARCH = "sm_90a"
BYTES, CTAS, THREADS = 1 << 20, 2, 256
_AT_ONCE, _LIMIT_S = 32, 125
MOST_CTAS, MOST_BYTES, MOST_CAPTURED = 256, 32 << 20, 14  # of captured launches; number of these from a folder
_HEAD = """.version 8.3
.target {arch}
.address_size 64
.visible .entry k(.param .u64 o{more}){{
.reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<128>; .reg .pred %p<8>; .shared .align 1024 .b8 m[40960];
.shared .align 8 .b64 bar; .local .align 16 .b8 l[512];
ld.param.u64 %rd1,[o]; cvta.to.global.u64 %rd1,%rd1; mov.u32 %r1,%tid.x; and.b32 %r2,%r1,31; mov.u32 %r20,m;
mad.lo.u32 %r3,%r1,64,65536; cvt.u64.u32 %rd2,%r3; add.u64 %rd2,%rd1,%rd2; {index} add.u32 %r5,%r20,%r4;
cvt.u64.u32 %rd3,%r4; add.u64 %rd3,%rd1,%rd3; st.shared.b32 [%r20],%r1; bar.sync 0; mov.u32 %r21,bar;
mov.u32 %r6,0; mov.u32 %r7,0; mov.u32 %r8,0; mov.u32 %r9,0; ld.global.u32 %r15,[%rd1+32]; setp.ne.u32 %p3,%r15,0;
and.b32 %r12,%r2,1; setp.eq.u32 %p1,%r12,0; setp.eq.u32 %p2,%r1,0;
{body}
st.global.v4.b32 [%rd2],{{%r6,%r7,%r8,%r9}}; ret; }}
"""
_INDEX = {  # byte offsets, in %r4
    "pairs": "shr.u32 %r4,%r2,1; mul.lo.u32 %r4,%r4,{s};",
    "twos": "shr.u32 %r10,%r2,2; and.b32 %r11,%r2,1; mad.lo.u32 %r4,%r10,2,%r11; mul.lo.u32 %r4,%r4,{s};",
    "halves": "and.b32 %r4,%r2,15; mul.lo.u32 %r4,%r4,{s};",
    "quarters": "and.b32 %r4,%r2,7; mul.lo.u32 %r4,%r4,{s};",
    "fours": "and.b32 %r4,%r2,3; mul.lo.u32 %r4,%r4,{s};",
    "some": "xor.b32 %r4,%r2,5; mul.lo.u32 %r4,%r4,{s}; and.b32 %r4,%r4,16383;",
    "mixed": "mul.lo.u32 %r4,%r2,7; xor.b32 %r4,%r4,%r2; and.b32 %r4,%r4,27; mul.lo.u32 %r4,%r4,{s};",
    "half": "and.b32 %r4,%r2,16; shr.u32 %r4,%r4,4; add.u32 %r4,%r4,%r2; and.b32 %r4,%r4,15; mul.lo.u32 %r4,%r4,{s};",
    "each": "mul.lo.u32 %r4,%r2,{s};",
    "same": "mov.u32 %r4,0;",
}
_SPIN = "L: mbarrier.try_wait.parity.shared::cta.b64 %p4,[%r21],0; @!%p4 bra L; "
_BARRIER = "@%p2 mbarrier.init.shared::cta.b64 [%r21],1; fence.mbarrier_init.release.cluster; bar.sync 0; "
_EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r21],{n}; "
_OTHER = "mov.u32 %r10,%cluster_ctarank; xor.b32 %r10,%r10,1; mapa.shared::cluster.u32 %r11,%r5,%r10; "
_MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
_GENERIC = "cvta.global.u64 %rd4,%rd3; cvt.u64.u32 %rd5,%r5; cvta.shared.u64 %rd5,%rd5; selp.u64 %rd6,{a},{b},{p}; "
_STACK = "mov.u32 %r13,l; and.b32 %r14,%r4,{m}; add.u32 %r13,%r13,%r14; add.u32 %r14,%r13,%r15; "
_WIDE = ("halves", "fours", "mixed", "half", "same")
_METRICS = (
    *(f"smsp__{one}.sum" for one in ("inst_executed", "thread_inst_executed", "thread_inst_executed_pred_on")),
    *(f"smsp__inst_executed_op_{space}_{how}.sum" for space in ("global", "shared", "local") for how in ("ld", "st")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_{one}.sum" for what in ("sectors", "requests") for one in (
        *(f"global_op_{how}" for how in ("ld", "st", "atom", "red")), "local_op_ld", "local_op_st")),
    *(f"l1tex__data_{what}_pipe_lsu_{mem}shared_op_{how}.sum"
      for what, mem in (("bank_conflicts", "mem_"), ("pipe_lsu_wavefronts", "mem_"))
      for how in ("ld", "st", "atom")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared{how}.sum" for how in ("", "_op_ld", "_op_st", "_op_atom")),
    "l1tex__data_pipe_lsu_wavefronts.sum", "l1tex__lsuin_requests.sum", "l1tex__f_wavefronts.sum",
    *(f"sm__inst_executed_pipe_{pipe}.sum" for pipe in (
        "tensor", "tensor_op_hmma", "tensor_op_gmma", "tensor_op_imma", "alu", "fma", "fmaheavy", "fp16", "fp64",
        "xu", "lsu", "uniform", "cbu", "adu", "tma")),
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in (
        "fadd", "fmul", "ffma", "hadd", "hmul", "hfma", "dadd", "dmul", "dfma")),
    *(f"smsp__sass_{one}.sum" for one in (
        "branch_targets", "branch_targets_threads_divergent", "inst_executed_op_branch", "inst_executed_op_local",
        "sectors_mem_global", "sectors_mem_local", "inst_executed_op_bar")),
    *(f"smsp__{one}.sum" for one in ("branch_targets_threads_divergent", "inst_issued", "issue_active")),
    "gpu__time_duration.sum", "sm__cycles_elapsed.max", "sm__cycles_active.max", "sm__cycles_active.avg",
    "sm__cycles_elapsed.avg.per_second", "dram__bytes.sum", "dram__cycles_elapsed.avg.per_second",
    "lts__t_sectors.sum", "lts__cycles_elapsed.avg.per_second", "sm__inst_executed_pipe_tensor.max",
    "smsp__inst_executed.max", "l1tex__data_pipe_lsu_wavefronts.max",
    "launch__occupancy_limit_blocks", "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps", "sm__maximum_warps_per_active_cycle_pct", "launch__registers_per_thread",
)  # fmt: skip


_SURE = ["smsp__inst_executed.sum", "gpu__time_duration.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]


def _wgmma(kind: str, acc: str, n: int, swizzle: int, by_registers: bool = False) -> str:
    """One wgmma, with operands behind one another in shared memory. swizzle: 0 none, 1 of 128 bytes, 2 of 64, 3 of
    32."""
    letter = "f" if acc == "f32" else "r"
    count = n // 2
    regs = ",".join(f"%acc{i}" for i in range(count))
    k = {"f16.f16": 16, "bf16.bf16": 16, "tf32.tf32": 8}.get(kind, 32)
    a = "{%r1,%r2,%r1,%r2}" if by_registers else "%rd7"
    tail = ",1,1" if acc == "f32" else ""
    tail += {True: ",0" if by_registers else ",0,0"}.get(kind in ("f16.f16", "bf16.bf16"), "")
    zero = "".join(f"mov.b32 %acc{i},0;" for i in range(count))
    return (
        f".reg .{'f32' if letter == 'f' else 'b32'} %acc<{count}>; {zero}"
        "shr.u32 %r22,%r20,4; and.b32 %r22,%r22,16383; cvt.u64.u32 %rd7,%r22; "
        f"or.b64 %rd7,%rd7,{swizzle << 62 | 64 << 32 | 1 << 16}; add.u64 %rd8,%rd7,512; "
        "wgmma.fence.sync.aligned; setp.ne.u32 %p5,%r1,9999;"
        f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{kind} {{{regs}}},{a},%rd8,%p5{tail};"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mov.b32 %r6,%acc0; mov.b32 %r7,%acc1;"
    )


def _bodies() -> Iterator[tuple[str, tuple[str, ...], tuple[int, ...], str, dict[str, Any]]]:
    """Yield name, indices, strides, code, and what the launch has beyond the others."""
    none: dict[str, Any] = {}
    for name, mask, kind, regs in (("4", 508, "b32", "{a}"), ("8", 504, "v2.b32", "{{{a},{b}}}"),
                                   ("16", 496, "v4.b32", "{{{a},{b},{c},{d}}}")):  # fmt: skip
        stored = regs.format(a="%r1", b="%r2", c="%r1", d="%r2")
        loaded = regs.format(a="%r6", b="%r7", c="%r8", d="%r9")
        text = _STACK.format(m=mask) + f"st.local.{kind} [%r13],{stored}; ld.local.{kind} {loaded},[%r14];"
        yield f"local{name}", ("same", "each", "mixed"), (int(name),), text, none
        if name != "8":
            text = (
                _STACK.format(m=mask) + f"@%p1 st.local.{kind} [%r13],{stored}; @%p1 ld.local.{kind} {loaded},[%r14];"
            )
            yield f"local{name}_odd", ("same", "mixed"), (int(name),), text, none
    text = "mov.u32 %r13,l; add.u32 %r14,%r13,%r15; st.local.b8 [%r13+1],%r1; st.local.b16 [%r13+4],%r1; ld.local.b8 %r6,[%r14];"
    yield "local1", ("same",), (4,), text, none
    for name, p, q in (("shared", "%rd5", "%rd4"), ("global", "%rd4", "%rd5")):
        text = _GENERIC.format(a=q, b=p, p="%p3")
        yield f"generic_{name}", ("each", "mixed"), (4, 128), text + "ld.b32 %r6,[%rd6]; st.b32 [%rd6+4],%r2;", none
        yield f"generic_{name}_atom", ("each",), (4,), text + "atom.add.u32 %r6,[%rd6],%r2;", none
    text = _GENERIC.format(a="%rd4", b="%rd5", p="%p1")
    yield "generic_both", ("each",), (4, 128), text + "ld.b32 %r6,[%rd6]; st.b32 [%rd6+4],%r2;", none
    for name, text in {
        "atoms_exch": "atom.shared.exch.b32 %r6,[%r5],%r2;", "atoms_min": "atom.shared.min.s32 %r6,[%r5],%r2;",
        "atoms_inc": "atom.shared.inc.u32 %r6,[%r5],9;", "reds": "red.shared.add.u32 [%r5],%r2;",
        "reds_one": "red.shared.add.u32 [%r5],1;", "atoms_cas": "atom.shared.cas.b32 %r6,[%r5],0,%r2;",
        "atomg_exch": "atom.global.exch.b32 %r6,[%rd3],%r2;", "atomg_cas": "atom.global.cas.b32 %r6,[%rd3],0,%r2;",
        "atomg_min": "atom.global.min.s32 %r6,[%rd3],%r2;", "redg_or": "red.global.or.b32 [%rd3],%r2;",
        "redg_f16": "red.global.add.noftz.f16x2 [%rd3],%r2;",
    }.items():  # fmt: skip
        yield name, ("mixed", "same"), (4,), text, none
    for name, text in {
        "atoms64": "cvt.u64.u32 %rd7,%r2; atom.shared.exch.b64 %rd8,[%r5],%rd7; cvt.u32.u64 %r6,%rd8;",
        "atoms64_cas": "cvt.u64.u32 %rd7,%r2; atom.shared.cas.b64 %rd8,[%r5],0,%rd7; cvt.u32.u64 %r6,%rd8;",
        "atomg64": "cvt.u64.u32 %rd7,%r2; atom.global.add.u64 %rd8,[%rd3],%rd7; cvt.u32.u64 %r6,%rd8;",
        "redg64": "cvt.u64.u32 %rd7,%r2; red.global.add.u64 [%rd3],%rd7;",
        "redg_f64": "cvt.rn.f64.u32 %rd9,%r2; red.global.add.f64 [%rd3],%rd9;",
    }.items():  # fmt: skip
        yield name, ("mixed", "same"), (8,), text, none
    text = "cvt.rn.f32.u32 %f1,%r2; red.global.add.v4.f32 [%rd3],{{%f1,%f1,%f1,%f1}};".replace("{{", "{").replace(
        "}}", "}"
    )
    yield "redg_v4", ("each", "mixed"), (16,), text, none
    for kind, bare in (("", ""), ("t", ".trans")):
        for count, regs in ((1, "{%r6}"), (2, "{%r6,%r7}"), (4, "{%r6,%r7,%r8,%r9}")):
            text = f"ldmatrix.sync.aligned.m8n8.x{count}{bare}.shared.b16 {regs},[%r5];"
            yield f"ldsm{count}{kind}", ("mixed",), (16, 80) if count == 4 else (80,), text, none
            text = f"stmatrix.sync.aligned.m8n8.x{count}{bare}.shared.b16 [%r5],{regs};"
            yield f"stsm{count}{kind}", ("mixed",), (16, 80) if count == 4 else (80,), text, none
    pair = {"cluster": (2, 1, 1)}
    text = _OTHER + _MEET + "ld.shared::cluster.b32 %r6,[%r11]; " + _MEET
    yield "cluster_ld", ("each", "mixed"), (4, 128), text, pair
    text = _OTHER + _MEET + "ld.shared::cluster.v4.b32 {%r6,%r7,%r8,%r9},[%r11]; " + _MEET
    yield "cluster_ld16", ("each", "same"), (16,), text, pair
    text = _OTHER + _MEET + "st.shared::cluster.b32 [%r11],%r2; " + _MEET
    yield "cluster_st", ("each", "mixed"), (4, 128), text, pair
    text = _OTHER + _MEET + "atom.shared::cluster.add.u32 %r6,[%r11],%r2; red.shared::cluster.add.u32 [%r11+4],%r2; "
    yield "cluster_atom", ("each", "same"), (4,), text + _MEET, pair
    copy = "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20],[%rd1],{n},[%r21]; "
    after = "ld.shared.b32 %r6,[%r5];"
    for n in (256, 4096):
        text = _BARRIER + _EXPECT.format(n=n) + copy.format(n=n) + _SPIN + after
        yield f"bulk_ld_{n}", ("each",), (4,), text, none
    text = "fence.proxy.async; bar.sync 0; add.u64 %rd7,%rd1,131072; @%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd7],[%r20],1024; "
    text += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    yield "bulk_st", ("each",), (4,), text, none
    yield (
        "bulk_red",
        ("each",),
        (4,),
        text.replace(
            "cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
        ),
        none,
    )
    for swizzle, width in ((0, 64), (1, 16), (2, 32), (3, 64)):  # of boxes: elements of 2 bytes
        tiling = Tiling(6, (256, 256), (512,), (width, 64), (1, 1), swizzle=swizzle)
        given = {"more": ", .param .align 64 .b8 map[128]", "tiling": tiling}
        text = _BARRIER + _EXPECT.format(n=width * 128) + "mov.b64 %rd7,map; cvta.param.u64 %rd7,%rd7; mov.u32 %r10,0; "
        text += "@%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r20],[%rd7,{%r10,%r10}],[%r21]; "
        yield f"tma_ld_{swizzle}", ("each",), (4,), text + _SPIN + after, given
        text = "fence.proxy.async; bar.sync 0; mov.b64 %rd7,map; cvta.param.u64 %rd7,%rd7; mov.u32 %r10,64; "
        text += "@%p2 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd7,{%r10,%r10}],[%r20]; "
        text += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        yield f"tma_st_{swizzle}", ("each",), (4,), text, given
    text = (
        _BARRIER
        + "mbarrier.arrive.shared::cta.b64 %rd7,[%r21]; mbarrier.test_wait.shared::cta.b64 %p4,[%r21],%rd7; selp.u32 %r6,1,0,%p4;"
    )
    yield "mbarrier", ("each",), (4,), text.replace("[%r21],1;", "[%r21],256;"), none
    text = _BARRIER + "@%p2 mbarrier.arrive.shared::cta.b64 _,[%r21]; bar.sync 0; " + _SPIN
    yield "mbarrier_one", ("each",), (4,), text, none
    text = _OTHER + _BARRIER + _MEET + "mapa.shared::cluster.u32 %r11,%r21,%r10; "
    text += "@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%r11]; " + _SPIN + _MEET
    yield "mbarrier_other", ("each",), (4,), text, pair
    text = _OTHER + _BARRIER + _EXPECT.format(n=1024) + _MEET + "mapa.shared::cluster.u32 %r13,%r21,%r10; "
    text += "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r11],%r2,[%r13]; " + _SPIN + _MEET
    yield "st_async", ("each",), (4,), text, pair
    text = (
        "cp.async.ca.shared.global [%r5],[%rd3],4; " + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r21]; " + _SPIN
    )
    yield "arrives", ("each",), (4,), _BARRIER.replace("[%r21],1;", "[%r21],256;") + text, none
    for swizzle in range(4):
        yield f"wgmma_f16_{swizzle}", ("each",), (4,), _wgmma("f16.f16", "f32", 64, swizzle), none
    for kind, acc, n in (("bf16.bf16", "f32", 128), ("tf32.tf32", "f32", 8), ("tf32.tf32", "f32", 64), ("e4m3.e4m3", "f32", 64),
                         ("s8.s8", "s32", 64), ("f16.f16", "f32", 256), ("f16.f16", "f32", 8)):  # fmt: skip
        yield f"wgmma_{kind.split('.')[0]}_n{n}", ("each",), (4,), _wgmma(kind, acc, n, 1), none
        if n < 256:
            yield f"wgmma_{kind.split('.')[0]}_n{n}_regs", ("each",), (4,), _wgmma(kind, acc, n, 1, True), none
    for lanes, guard in (("", ""), ("_odd", "@%p1 ")):
        few = _WIDE if not lanes else ("half", "mixed")
        yield f"lds8{lanes}", few, (8, 40), guard + "ld.shared.v2.b32 {%r6,%r7},[%r5];", none
        yield f"lds16{lanes}", few, (16, 80), guard + "ld.shared.v4.b32 {%r6,%r7,%r8,%r9},[%r5];", none
        text = guard + "red.global.add.u32 [%rd3],%r2;"
        yield f"redg{lanes}", ("half", "mixed"), (4, 32), text, none
        yield f"atoms{lanes}", ("half", "mixed", "same"), (4, 8), guard + "atom.shared.add.u32 %r6,[%r5],%r2;", none
    yield "sts16", ("mixed", "half", "fours"), (16, 80), "st.shared.v4.b32 [%r5],{%r1,%r2,%r1,%r2};", none
    yield "sts8", ("mixed", "half", "fours"), (8, 40), "st.shared.v2.b32 [%r5],{%r1,%r2};", none


def patterns() -> Iterator[tuple[str, bytes, Launch]]:
    """Yield name, image and launch of each pattern that ptxas takes."""
    ptxas = toolchain_of(find_ptxas())
    for body, indices, strides, text, given in _bodies():
        for index in indices:
            for stride in strides[:1] if index == "same" else strides:
                made = _HEAD.format(
                    arch=ARCH, index=_INDEX[index].format(s=stride), body=text, more=given.get("more", "")
                )
                name = f"{body}_{index}_{stride}"
                try:
                    image = ptxas.assemble_or_raise(Ptx(made)).cubin.data
                except TritonHookError as error:
                    print(name, "left out:", str(error)[:300], file=sys.stderr)
                    continue
                parameters: list[Any] = [Pointer("o", 0)]
                if "tiling" in given:
                    parameters.append(Descriptor("map", 0, 0, given["tiling"]))
                cluster = given.get("cluster", (1, 1, 1))
                buffers = (Buffer(BYTES, "uint32"),)
                yield name, image, Launch("k", (CTAS, 1, 1), (THREADS, 1, 1), tuple(parameters), buffers, cluster)


def captured(folder: Path) -> Iterator[tuple[str, bytes, Launch, Path]]:
    """Yield name, image, launch, and folder of its contents, of the small launches of a capture folder."""
    for one in selected(CaptureFolder.open(folder).latest(), None, None, dry=True):
        if not isinstance(one, Selected) or not one.launches:
            continue
        path = one.launches[0].path
        launch, image = read_launch(path), one.capture.cubin
        if math.prod(launch.grid) > MOST_CTAS or launch.bytes > MOST_BYTES:
            continue
        yield f"{folder.name}.{one.record[:60]}", image, launch, path.parent


def make(folder: Path, captures: list[Path]) -> None:
    """Write each launch: an image, and a document."""
    rows: list[Any] = []
    for place in captures:
        rows += list(captured(place))[:MOST_CAPTURED]
    rows += [(*one, None) for one in patterns()]
    for number, (name, image, launch, contents) in enumerate(rows):
        kept = {}
        for index, buffer in enumerate(launch.buffers):
            if contents is not None and buffer.values is not None and (contents / buffer.values).exists():
                kept[index] = b64encode((contents / buffer.values).read_bytes()).decode()
        entry = launch.kernel
        document = {"name": name, "entry": entry, "record": to_document(launch), "kept": kept}
        document |= {"cubin": b64encode(image).decode(), "file": f"{number:04}.json"}
        (folder / f"{number:04}.json").write_text(json.dumps(document))


def launch_some(folder: Path, begin: int) -> None:
    """Launch some once each; ncu watches this process."""
    from base64 import b64decode

    from tritonhook.capture.launches.schema import from_json
    from tritonhook.device.cuda_driver import Driver
    from tritonhook.timing.replay import LoadedKernel
    from tritonhook.verify.memory import GuardedMemory

    driver = Driver()
    driver.init()
    driver.create_context(driver.device(0))
    for path in sorted(folder.glob("*.json"))[begin : begin + _AT_ONCE]:
        one = json.loads(path.read_text())
        launch = from_json(json.dumps(one["record"]).encode(), path.name)
        with tempfile.TemporaryDirectory() as place:
            for index, data in one["kept"].items():
                (Path(place) / launch.buffers[int(index)].values).parent.mkdir(parents=True, exist_ok=True)
                (Path(place) / launch.buffers[int(index)].values).write_bytes(b64decode(data))
            memory = GuardedMemory(driver, launch, Path(place))
            memory.set_input("recorded", ())
        try:
            kernel = LoadedKernel(b64decode(one["cubin"]), one["entry"], memory, driver)
        except TritonHookError as error:
            print(one["name"], error, file=sys.stderr, flush=True)
            continue
        memory.restore()
        driver.synchronize()
        kernel.launch()
        driver.synchronize()
        with (folder / f"launched{begin}").open("a") as launched:
            launched.write(f"{path.name}\n")
        kernel.unload()
        memory.free()


def available() -> list[str]:
    """List the metrics that this ncu knows."""
    done = subprocess.run(["ncu", "--query-metrics", "--chips", "gh100"], capture_output=True, text=True)
    known = {line.split()[0] for line in done.stdout.splitlines() if "__" in line.partition(" ")[0]}
    asked = [one for one in _METRICS if one.partition(".")[0] in known or one.startswith("launch__")]
    return asked if known else _SURE


def pages(folder: Path, begin: int, metrics: list[str]) -> tuple[list[list[dict[str, str]]], list[dict[str, str]]]:
    """The source page of each launch, and the raw page."""
    report = folder / f"run{begin}"
    (folder / f"launched{begin}").unlink(missing_ok=True)
    what = ["--section", "SourceCounters", "--metrics", ",".join(dict.fromkeys(metrics))]
    program = [sys.executable, "-m", "benchmarks.emulating.ncu_patterns", "--launch", folder, str(begin)]
    subprocess.run(["ncu", *what, "-f", "-o", report, *program], check=False, stdout=subprocess.DEVNULL, timeout=60)

    def page(name: str) -> list[list[str]]:
        command = ["ncu", "--import", f"{report}.ncu-rep", "--page", name, "--csv"]
        more = ["--print-source", "sass"] if name == "source" else ["--print-units", "base"]
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
            sources[-1].append(
                {
                    k: v
                    for k, v in one.items()
                    if v not in ("", "0") and not k.startswith(("stall", "Warp Stall", "# S"))
                }
            )
    return sources, [dict(zip(header, row, strict=True)) for row in rows]


def main(out: Path, captures: list[Path]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, captures)
        rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        metrics = available()
        print(len(rows), "launches;", len(metrics), "metrics", flush=True)
        for again in (False, True):
            for begin in range(0, len(rows), _AT_ONCE):
                if time.monotonic() - began > _LIMIT_S:
                    break
                try:
                    sources, raw = pages(folder, begin, metrics[:3] if again else metrics)
                except (subprocess.SubprocessError, OSError, ValueError) as error:
                    print(begin, again, error, flush=True)
                    continue
                names = set((folder / f"launched{begin}").read_text().split())
                some = [row for row in rows[begin : begin + _AT_ONCE] if row["file"] in names]
                if not len(some) == len(sources) == len(raw):
                    print(begin, again, len(some), len(sources), len(raw), "launches", flush=True)
                    continue
                for row, counted, source in zip(some, raw, sources, strict=True):
                    if again:
                        row["same_in_second_run"] = row.get("instructions") == source
                    else:
                        row |= {"launch_counters": counted, "instructions": source}
                print(begin, again, f"{time.monotonic() - began:.0f} s", flush=True)
                done = [row for row in rows if "instructions" in row]
                out.write_bytes(lzma.compress(json.dumps(done).encode(), preset=1))
    print(len(done), "launches,", sum(one.get("same_in_second_run", False) for one in done), "equal in both runs")


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        launch_some(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "--make":
        make(Path(sys.argv[2]), [Path(one) for one in sys.argv[3:]])
    else:
        main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]])
