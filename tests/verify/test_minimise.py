"""The minimiser keeps what the difference needs, takes away the rest, and makes no kernel with undefined values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import wrong_code_kernels
from ptx_modules import HEADER

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
from tritonhook.cubin.image import Cubin
from tritonhook.errors import UsageError
from tritonhook.ptx.dataflow import read_unwritten
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import read_program
from tritonhook.ptxas.pool import Job, sweep
from tritonhook.ptxas.tool import Tool, available_ptxas, find_nvdisasm, find_ptxas, run_tool, temporary_file
from tritonhook.ptxas.toolchain import Assembled, assemble
from tritonhook.verify.minimise import Minimised, StillDiffers, Trial, minimise

TEXT = (
    HEADER
    + """
.global .b32 table[4];
.visible .func (.param .b32 r) helper(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];
  add.s32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }
.visible .entry other(.param .u64 q) { ret; }
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u32 n, .param .u64 c)
.reqntid 128, 1, 1
{
 .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<20>;
 ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [n]; ld.param.u64 %rd7, [c];
 mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.s32 %r4, %r3, 128, %r2;
 setp.ge.s32 %p1, %r4, %r1;
 @%p1 bra $DONE;
 mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
 mov.u32 %r5, 0; mov.f32 %f1, 0f00000000;
$LOOP:
 ld.global.v2.f32 {%f2, %f3}, [%rd4]; fma.rn.f32 %f1, %f2, %f3, %f1;
 add.s32 %r5, %r5, 1; setp.lt.s32 %p2, %r5, 17; @%p2 bra $LOOP;
 bar.sync 0;
 { .reg .pred %p; setp.gt.f32 %p, %f1, 0f40A00000; @%p st.global.f32 [%rd5], %f1; }
 st.global.f32 [%rd7], %f1;
$DONE:
 ret;
}
"""
)


def launched() -> Trial:
    names = ("a", "b", "c")
    buffers = tuple(Buffer(1024, "float32") for _ in names)
    pointers = [Pointer(name, number, 0, "float32", (256,)) for number, name in enumerate(names)]
    parameters = (*pointers[:2], Scalar("n", "i32", 256), pointers[2])
    launch = Launch("kernel", (2, 1, 1), (128, 1, 1), parameters, buffers)
    return Trial(TEXT, "kernel", launch, tuple(bytes([number]) * 1024 for number in (1, 2, 3)))


def shrink(holds: Callable[[Trial], Any], trial: Trial | None = None, **options: Any) -> Minimised:
    def judge(trials: Sequence[Trial]) -> list[bool]:
        return [bool(holds(trial)) for trial in trials]

    return minimise(trial or launched(), judge, **options)


def body(found: Minimised) -> list[str]:
    return [line.strip() for line in found.trial.ptx.partition("{")[2].splitlines() if line.startswith("\t")]


def test_what_the_difference_needs_stays() -> None:
    """The trial differs as long as an fma's result is stored to buffer `b`."""

    def holds(trial: Trial) -> object:
        (function,) = [f for f in read_program(Ptx(trial.ptx)).functions if f.is_entry and f.name in ("kernel", "k")]
        text = "\n".join(item.text for item in function.items)
        fma = re.search(r"fma\.rn\.f32 (%r\d+)", text)
        pointers = re.findall(r"ld\.param\.\w+ (%rd\d+), \[(?:b|p0|p1)\]", text)
        return fma and any(f"st.global.f32 [{pointer}], {fma[1]};" in text or "add.s64" in text for pointer in pointers)

    found = shrink(holds)
    assert found.finished and found.trial.lines < found.before
    assert "\n".join(body(found)).count("fma.rn.f32") == 1
    text = found.trial.ptx
    assert not any(word in text for word in ("other", "helper", "table", "bar.sync", "bra", ".reqntid"))
    assert found.trial.entry == "k" and found.trial.launch is not None and found.trial.launch.kernel == "k"


def test_the_launch_keeps_step_with_the_parameters() -> None:
    found = shrink(lambda trial: re.search(r"st\.global\.f32 \[%rd\d+\], %[rf]\d+;", trial.ptx) and "[c]" in trial.ptx)
    launch = found.trial.launch
    assert launch is not None
    assert [parameter.name for parameter in launch.parameters if isinstance(parameter, Pointer)] == ["c"]
    assert [buffer.size for buffer in launch.buffers] == [1024] and len(found.trial.contents) == 1
    assert (launch.grid, launch.block) == ((1, 1, 1), (1, 1, 1))
    assert not any(found.trial.contents[0])


def test_contents_that_matter_stay() -> None:
    def holds(trial: Trial) -> bool:
        return "[a]" in trial.ptx and trial.contents[0][500:504] == b"\1\1\1\1"

    found = shrink(holds)
    assert found.trial.contents[0][500:504] == b"\1\1\1\1"
    assert found.trial.contents[0].count(1) <= 16


def test_a_block_and_its_directive_keep_step() -> None:
    found = shrink(lambda trial: ".reqntid" in trial.ptx and trial.launch is not None and trial.launch.block[0] >= 32)
    assert found.trial.launch is not None and found.trial.launch.block == (32, 1, 1)
    assert ".reqntid 32, 1, 1" in found.trial.ptx


@pytest.mark.parametrize("opcode", ["fma.rn.f32", "setp.gt.f32", "st.global.f32"])
def test_no_register_is_read_before_it_is_written(opcode: str) -> None:
    ptxas = find_ptxas()

    def holds(trial: Trial) -> bool:
        return opcode in trial.ptx and isinstance(assemble(ptxas, Ptx(trial.ptx), []), Assembled)

    found = shrink(holds)
    (function,) = read_program(Ptx(found.trial.ptx)).functions
    assert not read_unwritten(function)
    assert len(function.items) < 8


SHARED = (
    HEADER
    + """.visible .entry k(.param .u64 a)
{
 .reg .b32 %r<9>; .reg .b64 %rd<3>; .shared .align 16 .b8 room[512];
 ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, room; add.s32 %r4, %r3, %r2;
 bar.sync 0; st.shared.b32 [%r4], %r1; bar.sync 0; ld.shared.b32 %r5, [room]; st.global.b32 [%rd1], %r5; ret;
}
"""
)


@pytest.mark.parametrize(("threads", "barriers"), [(64, 1), (1, 0)])
def test_a_barrier_between_threads_stays(threads: int, barriers: int) -> None:
    launch = Launch("k", (1, 1, 1), (64, 1, 1), (Pointer("a", 0),), (Buffer(4, "int32"),))

    def holds(trial: Trial) -> bool:
        assert trial.launch is not None
        is_exchange = "st.shared" in trial.ptx and "ld.shared" in trial.ptx
        return is_exchange and trial.launch.block[0] >= threads

    found = shrink(holds, Trial(SHARED, "k", launch, (bytes(4),)))
    assert found.trial.ptx.count("bar.sync") == barriers


def test_a_register_that_one_instruction_reads_unwritten_is_not_read_so_by_others() -> None:
    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, %rd2, %rd2, %p1, 1, 1, 0, 0;"
    text = SHARED.replace(
        "ret;", f"mov.b64 %rd2, 0; setp.eq.s32 %p1, %r5, 1; {product} st.global.b32 [%rd1], %r1; ret;"
    )
    text = text.replace("mov.u32 %r1, %tid.x;", "").replace("shl.b32 %r2, %r1, 2;", "mov.u32 %r2, %tid.x;")
    text = text.replace("st.shared.b32 [%r4], %r1", "st.shared.b32 [%r4], %r2").replace(
        ".reg .b32 %r<9>;", ".reg .b32 %r<9>; .reg .pred %p<3>;"
    )
    text = text.replace("st.global.b32 [%rd1], %r5; ", "")
    found = shrink(lambda trial: re.search(r"st\.global\.b32 \[%rd\d+\], %r\d+;", trial.ptx), Trial(text, "k"))
    (function,) = read_program(Ptx(found.trial.ptx)).functions
    assert not read_unwritten(function)


def test_a_pointer_stays_a_pointer() -> None:
    text = shrink(lambda trial: "ld.global.v2.f32" in trial.ptx).trial.ptx
    address = re.search(r"ld\.global\.v2\.f32 \{[^}]*\}, \[(%rd\d+)\]", text)
    assert address and f"ld.param.u64 {address[1]}, [p0]" in text


def test_without_a_difference_there_is_nothing_to_minimise() -> None:
    with pytest.raises(UsageError, match="nothing to minimise"):
        shrink(lambda trial: False)


def test_a_difference_that_needs_the_text_as_it_is_cannot_be_minimised() -> None:
    with pytest.raises(UsageError, match="cannot be minimised"):
        shrink(lambda trial: "$LOOP" in trial.ptx)


def test_when_the_time_is_over_the_best_case_is_there() -> None:
    found = shrink(lambda trial: "fma" in trial.ptx, seconds=0)
    assert not found.finished and "fma" in found.trial.ptx and "the time limit" in found.summary


def test_no_case_is_judged_twice() -> None:
    seen: set[Trial] = set()

    def judge(trials: Sequence[Trial]) -> list[bool]:
        assert not seen & set(trials) and len(set(trials)) == len(trials)
        seen.update(trials)
        return ["fma" in trial.ptx for trial in trials]

    assert minimise(launched(), judge).tried == len(seen)


# Whether a trial is miscompiled, by the machine code alone: one ptxas's code has the proof of a known bug, and
# another's has not.
Proof = Callable[[Sequence[str]], bool]
_MERGE = re.compile(r"F2FP\S*MERGE_C (R\d+),.*\b(RZ|R\d+)(?:\.H\d)?$")


def keeps_garbage(code: Sequence[str]) -> bool:
    """Whether a pair of fp8 numbers is merged with a register that no conversion has written."""
    converted = {"RZ"}
    for line in code:
        if match := _MERGE.match(line):
            if match[2] not in converted:
                return True
            converted.add(match[1])
    return False


def rotates(code: Sequence[str]) -> bool:
    """Whether two funnel shifts turn a 64-bit number around by 8."""
    return sum(line.startswith("SHF.L.W.U32.HI") and ",0x8," in line for line in code) >= 2


def differs_in_code(wrong: Tool, right: Tool, proof: Proof) -> StillDiffers:
    """A judge of the minimiser: `wrong`'s code has the proof, and `right`'s has not."""
    known: dict[bytes, bool] = {}  # whether a code has it: a run of nvdisasm takes as long as ten of ptxas

    def judge(trials: Sequence[Trial]) -> list[bool]:
        pairs = list(zip(_codes(trials, wrong), _codes(trials, right), strict=True))
        new = list(dict.fromkeys(code for pair in pairs for code in pair if code is not None and code not in known))
        known.update(zip(new, map(proof, _listings(new)), strict=True))
        return [a is not None and b is not None and known[a] and not known[b] for a, b in pairs]

    return judge


def _codes(trials: Sequence[Trial], ptxas: Tool) -> list[bytes | None]:
    """What a ptxas makes of each trial; None where it makes nothing."""
    jobs = [Job(trial.ptx, ptxas, keep_cubin=True) for trial in trials]
    made = {job.key: outcome.cubin for job, outcome in sweep(jobs)}
    cubins = [made[job.key] for job in jobs]
    return [data and Cubin.from_bytes(data).text(trial.entry) for trial, data in zip(trials, cubins, strict=True)]


def _listings(codes: Sequence[bytes]) -> list[list[str]]:
    """The instructions of each code for sm_90, without guards, all from one run of nvdisasm."""
    if not codes:
        return []
    with temporary_file("code.bin", b"".join(codes)) as path:
        done = run_tool([str(find_nvdisasm().path), "-json", "--binary", "SM90", str(path)])
    (function,) = json.loads(done.stdout)[1]
    lines = [f"{i['opcode']} {i.get('operands', '')}".strip() for i in function["sass-instructions"]]
    found, start = [], 0
    for code in codes:
        found.append(lines[start : start + len(code) // 16])
        start += len(code) // 16
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "block", "proof", "needed"),
    [
        ("quantize_rows", 32, keeps_garbage, ("cvt.rn.satfinite.e4m3x2.f32", "mov.b32")),
        ("hashed_softmax", 128, rotates, ("shl.b64", "shr.u64", "sub.s64")),
    ],
)
def test_a_real_kernel_becomes_small(
    name: str, block: int, proof: Callable[[Sequence[str]], bool], needed: Sequence[str], triton_cache: Any
) -> None:
    """Known miscompilations, proved by the machine code of a wrong and a right ptxas."""
    tools = {tool.version: tool for tool in available_ptxas()}
    newest = max(tools, key=version_key)
    if "12.8.93" not in tools or version_key(newest) < (13, 3):
        pytest.skip("requires ptxas 12.8.93 and one of 13.3 or newer")
    text = str(getattr(wrong_code_kernels, f"compile_{name}")(block=block).asm["ptx"])
    found = minimise(Trial(text, name), differs_in_code(tools["12.8.93"], tools[newest], proof))
    assert found.trial.lines < 60
    assert all(opcode in found.trial.ptx for opcode in needed)
