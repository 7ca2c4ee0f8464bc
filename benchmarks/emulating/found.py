"""Miscompilations that are found by execution only, each ptxas judged by what its machine code stores.

pairs      Our own PTX: `mul.rn.f32x2` and `add.rn.f32x2`, which must not become one instruction.
published  The programs of a folder of FuzzX (github.com/SemiAnalysisAI/FuzzX, ptx/known-miscompiles; not kept here):
           each must store what its PTX says, for several numbers and contents, under the newest three ptxas; one that
           the newest is wrong with, under every ptxas and for further targets.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.emulating.kept import Row

LEVEL, _LIMIT_S = "-O3", 10.0
_NUMBERS = (0, 1, 2, 3, 8, 33, 50, 0xFFFF_FFF0)
_BYTES, _THREADS = 1 << 14, 32
_TARGETS = {"sm_80": "8.0", "sm_90a": "8.0", "sm_100a": "8.6", "sm_120a": "8.7"}  # with a version of PTX
_PAIRS = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 out_p, .param .u64 in_p)
{{
.reg .b64 %out, %in, %a, %b, %c;
ld.param.u64 %out, [out_p]; ld.param.u64 %in, [in_p];
ld.global.v2.b64 {{%a, %b}}, [%in]; ld.global.b64 %c, [%in+16];
mul.rn.f32x2 %a, %a, %b;
add.rn.f32x2 %a, %a, %c;
st.global.b64 [%out], %a;
ret;
}}
"""
# 1 + 2^-12 squared is 1 + 2^-11 + 2^-24; less 1 + 2^-11, the last part is there in a fused operation alone.
_X = struct.pack("<f", 1 + 2.0**-12)
_GIVEN = (_X * 4 + struct.pack("<f", -(1 + 2.0**-11)) * 2).ljust(_BYTES, b"\0")


def pairs() -> Iterator[Row]:
    """What each ptxas makes of a rounded product and a rounded sum of pairs."""
    for target, version in (("sm_100a", "8.6"), ("sm_120a", "8.7")):
        yield _row("rounded-pair", target, _PAIRS.format(target=target, version=version), _tools(), [(0, _GIVEN)])


def published(folder: Path) -> Iterator[Row]:
    """What the newest three ptxas make of published programs."""
    draw = random.Random(1)
    words = [draw.getrandbits(32) for _ in range(_BYTES // 4)]
    contents = struct.pack(f"<{len(words)}I", *words)
    inputs = [(number, contents[4 * shift :] + contents[: 4 * shift]) for number in _NUMBERS for shift in (0, 1)]
    for path in sorted(folder.glob("*/reduced.ptx")):
        text = path.read_text().replace(".para ", ".param ")
        target = text.partition(".target")[2].split()[0].rstrip(",")
        name = path.parent.name.partition("-")[0]
        yield (row := _row(name, target, text, _tools()[-3:], inputs))
        if row["builds"] and newest_of(row) == "wrong":
            for other, version in _TARGETS.items():
                head = f".version {version}\n.target {other}\n.address_size 64\n"
                yield _row(name, other, head + text.partition(".address_size 64\n")[2], _tools(), inputs)


def newest_of(row: Row) -> str:
    """What the newest ptxas of a row makes of it."""
    from tritonhook._util.versions import version_key

    said: str = row["builds"][max(row["builds"], key=version_key)]
    return said


def _tools() -> list[Any]:
    from tritonhook._util.versions import version_key
    from tritonhook.ptxas.tool import available_ptxas

    tools = {tool.version: tool for tool in available_ptxas()}
    return [tools[version] for version in sorted(tools, key=version_key)]


def _row(name: str, target: str, text: str, tools: list[Any], inputs: list[tuple[int, bytes]]) -> Row:
    from tritonhook.emulate.ptx.kernel import read_kernel
    from tritonhook.errors import TritonHookError
    from tritonhook.ptx.module import Ptx

    row: Row = {"name": name, "target": target, "builds": {}, "why": ""}
    try:
        ptx = Ptx(text)
        kernel = read_kernel(ptx, ptx.entries[0])
        wanted = _stored(kernel, kernel, inputs)
    except TritonHookError as error:
        return row | {"why": f"PTX: {error}"}
    for tool in tools:
        row["builds"][tool.version] = said = _judged(ptx, kernel, tool, inputs, wanted)
        if said.startswith("not understood"):
            row["why"] = said
    print(*row.values(), flush=True)
    return row


def _judged(ptx: Any, kernel: Any, tool: Any, inputs: list[tuple[int, bytes]], wanted: list[bytes]) -> str:
    from tritonhook.emulate.sass.kernel import read_sass_kernel
    from tritonhook.errors import TritonHookError
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain

    try:
        made = assemble(tool, ptx, [LEVEL])
        if not isinstance(made, Assembled):
            return "refused"
    except TritonHookError:
        return "refused"
    try:
        sass = reading_toolchain().disassemble(made.cubin, [kernel.entry])[kernel.entry]
        return "right" if _stored(read_sass_kernel(made.cubin, sass), kernel, inputs) == wanted else "wrong"
    except TritonHookError as error:
        return f"not understood: {error}"


def _stored(code: Any, kernel: Any, inputs: list[tuple[int, bytes]]) -> list[bytes]:
    """What one form of a kernel stores for each input: it gets a buffer for each address, and the number."""
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
    from tritonhook.emulate.run import Run, run_code, run_ptx

    named = [one for one, _ in kernel.parameters.variables]
    places = [one.name for one in named if one.size == 8]
    parameters = [Pointer(one.name, places.index(one.name)) if one.size == 8 else None for one in named]
    found = []
    for number, given in inputs:
        arguments = tuple(
            pointer or Scalar(one.name, "u32", number) for one, pointer in zip(named, parameters, strict=True)
        )
        buffers = tuple(Buffer(_BYTES, "uint8") for _ in places)
        run = Run(Launch(kernel.entry, (1, 1, 1), (_THREADS, 1, 1), arguments, buffers), (0,), limit_s=_LIMIT_S)
        contents = [bytes(_BYTES) if "out" in name else given for name in places]
        execute: Any = run_ptx if code is kernel else run_code
        found.append(b"".join(execute(code, run, contents).contents))
    return found
