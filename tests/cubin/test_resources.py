"""Spills that the code proves are those that `ptxas -v` prints; what it cannot prove is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import local_traffic
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, Toolchain

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_CALLED = (
    ".func (.param .b32 r) f(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x]; st.param.b32 [r], %r1; ret; }"
)
CALL = "{ .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call (q), f, (p); ld.param.b32 %r2, [q]; }"
ARRAY = (
    "mov.u64 %rd2, own; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd2, %rd3; st.local.u32 [%rd4], %r1;"
    " st.local.u32 [%rd2], %r2; ld.local.u32 %r2, [%rd4+4]; st.global.u32 [%rd1], %r2;"
)


def module(values: int, kind: str = "f32", target: str = "sm_90a", body: str = "", declared: str = "") -> Ptx:
    """A loop that keeps so many values in registers."""
    letter, width = ("f", 4) if kind == "f32" else ("d", 8)
    loads, uses, stores = [], [], []
    for i in range(values):
        loads.append(f"ld.global.{kind} %{letter}{i}, [%rd1+{width * i}];")
        uses.append(
            f"fma.rn.{kind} %{letter}{i}, %{letter}{(i + 7) % values}, %{letter}{(i + 3) % values}, %{letter}{i};"
        )
        stores.append(f"st.global.{kind} [%rd1+{width * i}], %{letter}{i};")
    code = "\n".join([*loads, "L:", *uses, *uses, "add.u32 %r7, %r7, 1; setp.lt.u32 %p, %r7, %r1; @%p bra L;", *stores])
    return Ptx(
        f".version 8.7\n.target {target}\n.address_size 64\n{_CALLED if 'call' in body else ''}\n"
        f".visible .entry k(.param .u64 a, .param .u32 b) {{ {declared}\n"
        f".reg .f32 %f<{values}>; .reg .f64 %d<{values}>; .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p;\n"
        f"ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [b]; mov.u32 %r7, 0; mov.u32 %r2, 0;\n{body}\n{code}\nret; }}\n"
    )


def assembled(tools: Toolchain, ptx: Ptx, registers: int) -> Assembled:
    result = tools.assemble(ptx, ("-v", f"--maxrregcount={registers}"))
    assert isinstance(result, Assembled), result
    return result


CASES = [
    *((module(100, target=target), 32) for target in ("sm_80", "sm_90a", "sm_100a", "sm_120a")),
    (module(60, "f64"), 40),
    (module(20), 64),  # spills nothing
]


@pytest.mark.parametrize(("ptx", "registers"), CASES, ids=lambda value: getattr(value, "target", value))
def test_spills_of_the_code_are_those_of_the_log(ptx: Ptx, registers: int, tools: Toolchain) -> None:
    result = assembled(tools, ptx, registers)
    told = result.cubin.resources["k"]
    cubin = Cubin.from_bytes(result.cubin.data).with_proven_spills(ptx)
    proven = cubin.resources["k"]
    assert (proven.spill_stores, proven.spill_loads) == (told.spill_stores, told.spill_loads)
    assert bool(told.spill_stores) == (registers != 64)


def test_the_count_is_that_of_the_disassembly(tools: Toolchain) -> None:
    result = assembled(tools, module(60, "f64", body=ARRAY, declared=".local .align 8 .b8 own[64];"), 40)
    found = {"STL": 0, "LDL": 0}
    for instruction in tools.disassemble(result.cubin)["k"].instructions:
        if instruction.base_opcode in found:
            words = instruction.opcode.split(".")[1:]
            found[instruction.base_opcode] += next((WIDTHS[w] for w in words if w in WIDTHS), 4)
    assert found["STL"] > 8 and tuple(found.values()) == result.cubin.resources["k"].local_traffic


@pytest.mark.parametrize(("body", "declared"), [(ARRAY, ".local .align 8 .b8 own[64];"), (CALL, "")])
@pytest.mark.parametrize("registers", [32, 255])
def test_beside_an_array_or_a_call_spills_are_not_known(
    body: str, declared: str, registers: int, tools: Toolchain
) -> None:
    ptx = module(100, body=body, declared=declared)
    result = assembled(tools, ptx, registers)
    resources = Cubin.from_bytes(result.cubin.data).with_proven_spills(ptx).resources["k"]
    if resources.local_traffic == (0, 0):
        assert (resources.spill_stores, resources.spill_loads) == (0, 0)
    else:
        assert (resources.spill_stores, resources.spill_loads) == (None, None)
    assert resources.local_traffic is not None and result.cubin.resources["k"].spill_stores is not None
    assert resources.local_traffic.stores >= result.cubin.resources["k"].spill_stores


def test_without_ptx_or_before_sm_70_spills_are_not_known(tools: Toolchain) -> None:
    result = assembled(tools, module(100), 32)
    cubin = Cubin.from_bytes(result.cubin.data).with_proven_spills(None)
    assert cubin.resources["k"].spill_stores is None and cubin.resources["k"].local_stores > 0
    other = Cubin.from_bytes(result.cubin.data).with_proven_spills(Ptx(module(9).text.replace(" k(", " x(")))
    assert other.resources["k"].spill_stores is None
    assert local_traffic(result.cubin.text("k"), 61) is None


def test_arguments_of_a_system_call_are_no_spills(tools: Toolchain) -> None:
    """ptxas 12.9 calls the driver for a TMA load on sm_120a, and puts an argument on the stack."""
    ptx = module(100)
    cubin = Cubin.from_bytes(assembled(tools, ptx, 32).cubin.data)
    calls = {"k": replace(cubin.resources["k"], externs=("__cuda_syscall_cp_async_bulk_tensor_2d_tile_unicast",))}
    assert cubin.with_proven_spills(ptx).resources["k"].spill_stores is not None
    assert replace(cubin, resources=calls).with_proven_spills(ptx).resources["k"].spill_stores is None


def test_each_width_of_a_local_access_is_counted() -> None:
    def code(opcode: int, width: int) -> bytes:
        word = bytearray(16)
        word[:2], word[9] = (opcode | 0x7800).to_bytes(2, "little"), width << 1 | 0xF1
        return bytes(word)

    every = b"".join(code(0x187, width) + code(0x183, width) * 2 for width in range(8))
    assert local_traffic(every, 70) == (1 + 1 + 2 + 2 + 4 + 8 + 16 + 16, 100) == local_traffic(every + b"\x87", 120)
    assert local_traffic(every, 69) is None and local_traffic(b"", 90) == (0, 0)
    assert local_traffic(code(0x087, 4) + code(0x181, 4) + bytes(8) + code(0x187, 4), 90) == (0, 0)
