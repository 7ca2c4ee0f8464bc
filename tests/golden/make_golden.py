"""Makes tests/golden: small PTX modules, the cubins that ptxas makes of them, and their disassembly.

    python tests/golden/make_golden.py            # needs triton (for its ptxas and its compiler) and nvdisasm

Run it only to add a file: ptxas 12.8.93 and nvdisasm 13.5.37 made the ones that are kept, and the tests
state numbers of theirs. tests/golden/README.md says what each file is.
"""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Callable
from pathlib import Path

from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain, run_nvdisasm

GOLDEN = Path(__file__).parent
PTXAS = "12.8.93"

HEAD = """.version 8.7
.target {arch}
.address_size 64
"""

# A loop of eight ex2 and eight fma, not unrolled: long latencies next to short ones, so that the two
# schedulers of ptxas order it differently on every architecture.
EXP_LOOP = (
    HEAD
    + """.visible .entry {name}(.param .u64 {name}_param_0, .param .u32 {name}_param_1)
.reqntid 128
{{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<12>;
    ld.param.u64 %rd1, [{name}_param_0];
    ld.param.u32 %r1, [{name}_param_1];
    ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%rd1];
    ld.global.v4.f32 {{%f4, %f5, %f6, %f7}}, [%rd1+16];
    ld.global.v4.f32 {{%f8, %f9, %f10, %f11}}, [%rd1+32];
    mov.u32 %r2, 0;
loop:
    .pragma "nounroll";
"""
    + "".join(
        f"    ex2.approx.ftz.f32 %f{i}, %f{i};\n    fma.rn.f32 %f{i}, %f{i}, %f{i + 1}, %f{i + 2};\n" for i in range(8)
    )
    + """    st.global.f32 [%rd1], %f0;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra loop;
    st.global.v4.f32 [%rd1], {{%f0, %f1, %f2, %f3}};
    st.global.v4.f32 [%rd1+16], {{%f4, %f5, %f6, %f7}};
    ret;
}}
"""
)

# Eight fma and nothing to wait for: the usual scheduler gives no yield hint here either.
FMA_LOOP = "\n".join(line for line in EXP_LOOP.splitlines() if "ex2" not in line and "[%rd1], %f0;" not in line) + "\n"

TCGEN05_LOOP = (
    HEAD
    + """.visible .entry {name}(.param .u64 {name}_param_0, .param .u32 {name}_param_1)
.reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u32 %r1, [{name}_param_1];
    mov.u32 %r2, %tid.x;
    shr.u32 %r3, %r2, 5;
    setp.eq.u32 %p0, %r3, 0;
    setp.ne.u32 %p1, %r1, 0;
    mov.b64 %rd2, 0x4000004000010000;
    mov.b64 %rd3, 0x4000004000010000;
    mov.u32 %r5, 0;
    mov.u32 %r6, 0x8100010;
    mov.u32 %r7, 0;
loop:
    .pragma "nounroll";
    @%p0 tcgen05.mma.cta_group::1.kind::f8f6f4 [%r5], %rd2, %rd3, %r6, %p1;
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p2, %r7, %r1;
    @%p2 bra loop;
    ret;
}}
"""
)

# On sm_120 a load to shared::cluster is a call of the driver.
TENSOR_LOAD = (
    HEAD
    + """.extern .shared .align 128 .b8 smem[];
.visible .entry {name}(.param .u64 {name}_param_0)
.reqntid 128
{{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [{name}_param_0];
    mov.u32 %r1, smem;
    add.u32 %r2, %r1, 128;
    mov.u32 %r3, 0;
    cp.async.bulk.tensor.2d.shared::{space}.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r3, %r3}}], [%r1];
    ret;
}}
"""
)

# Three kernels and a device function: one with 1 KiB of shared memory, a 48-byte frame, 64 x 2 threads
# and barriers; one that needs nothing; one that needs vprintf.
MODULE = (
    HEAD
    + """.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 valist);
.global .align 1 .b8 message[4] = {{104, 105, 10, 0}};
.func (.reg .b32 %out) foo_helper(.reg .b32 %in)
{{
    .reg .b32 %r<2>;
    mul.lo.s32 %r1, %in, %in;
    bar.sync 3;
    mov.b32 %out, %r1;
    ret;
}}
.visible .entry foo(.param .u64 foo_param_0)
.reqntid 64, 2
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .b32 %a;
    .shared .align 4 .b8 tile[1024];
    .local .align 16 .b8 frame[48];
    ld.param.u64 %rd1, [foo_param_0];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r2], %r1;
    bar.sync 0;
    bar.sync 1, 64;
    ld.shared.u32 %r1, [%r2+4];
    call (%a), foo_helper, (%r1);
    mov.u64 %rd2, frame;
    add.u64 %rd2, %rd2, %rd1;
    st.local.u32 [%rd2], %a;
    st.global.u32 [%rd1], %a;
    ret;
}}
.visible .entry foo_bar(.param .u64 foo_bar_param_0)
{{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [foo_bar_param_0];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}}
.visible .entry printer()
{{
    .reg .b64 %rd<4>; .reg .b32 %r<2>;
    mov.u64 %rd1, message;
    cvta.global.u64 %rd1, %rd1;
    mov.u64 %rd2, 0;
    {{
    .param .b64 p0; .param .b64 p1; .param .b32 back;
    st.param.b64 [p0], %rd1;
    st.param.b64 [p1], %rd2;
    call.uni (back), vprintf, (p0, p1);
    ld.param.b32 %r1, [back];
    }}
    ret;
}}
"""
)

MODULES = {
    **{
        f"{arch}.exp.{kind}": EXP_LOOP.format(arch=arch, name=name)
        for arch in ("sm_80", "sm_90a", "sm_120a")
        for kind, name in (("plain", "cutlasz_k"), ("cutlass", "cutlass_k"))
    },
    "sm_90a.exp.renamed": EXP_LOOP.format(arch="sm_90a", name="a_much_longer_name_k"),
    "sm_90a.fma.plain": FMA_LOOP.format(arch="sm_90a", name="cutlasz_k"),
    "sm_90a.fma.cutlass": FMA_LOOP.format(arch="sm_90a", name="cutlass_k"),
    "sm_100a.tcgen05.plain": TCGEN05_LOOP.format(arch="sm_100a", name="cutlasz_k"),
    "sm_100a.tcgen05.cutlass": TCGEN05_LOOP.format(arch="sm_100a", name="cutlass_k"),
    "sm_120a.tensor_load.cluster": TENSOR_LOAD.format(arch="sm_120a", name="load", space="cluster"),
    "sm_120a.tensor_load.cta": TENSOR_LOAD.format(arch="sm_120a", name="load", space="cta"),
    "sm_80.module": MODULE.format(arch="sm_80"),
    "sm_90a.module": MODULE.format(arch="sm_90a"),
}

# What `sass` and `diff` read without nvdisasm.
DISASSEMBLED = (
    "sm_80.exp.plain",
    "sm_80.exp.cutlass",
    "sm_90a.exp.plain",
    "sm_90a.exp.cutlass",
    "sm_90a.exp.renamed",
    "sm_90a.fma.plain",
    "sm_90a.fma.cutlass",
    "sm_120a.exp.plain",
    "sm_120a.exp.cutlass",
    "sm_100a.tcgen05.plain",
    "sm_100a.tcgen05.cutlass",
    "sm_120a.tensor_load.cluster",
    "sm_90a.module",
)

TRITON_SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def double(x):
    return x + x


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = double(tl.load(x + at, mask=inside)) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)
"""


def make_triton_ptx(capability: int) -> str:
    """Real PTX with debug info. The source never is a file, so that no path of a machine gets in."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name = "kernels.py"
    linecache.cache[name] = (len(TRITON_SOURCE), None, TRITON_SOURCE.splitlines(True), name)
    scope: dict[str, object] = {"__name__": "kernels"}
    exec(compile(TRITON_SOURCE, name, "exec"), scope)
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(scope["add"], signature, {"BLOCK": 256})
    return str(triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"])


def compact(output: bytes) -> str:
    """nvdisasm's JSON without white space, one instruction in a line."""
    head, functions = json.loads(output)
    lines = []
    for function in functions:
        code = ",\n".join(json.dumps(item, separators=(",", ":")) for item in function["sass-instructions"])
        rest = {key: value for key, value in function.items() if key != "sass-instructions"}
        lines.append(json.dumps(rest)[:-1] + ', "sass-instructions": [\n' + code + "\n]}")
    return f"[{json.dumps(head)}, [\n" + ",\n".join(lines) + "\n]]\n"


def write(name: str, make: Callable[[], bytes], force: bool) -> None:
    path = GOLDEN / name
    if path.exists() and not force:
        print(f"kept   {name}; --force makes it again")
        return
    path.write_bytes(make())
    print(f"wrote  {name} ({path.stat().st_size:,} bytes)")


def main() -> None:
    force = "--force" in sys.argv[1:]
    GOLDEN.mkdir(exist_ok=True)
    tools = find_toolchain(PTXAS)
    for name, text in MODULES.items():
        write(f"{name}.cubin", lambda text=text: tools.assemble_or_raise(Ptx(text), ("-v",)).cubin.data, force)
    for name in DISASSEMBLED:
        cubin = GOLDEN / f"{name}.cubin"
        write(
            f"{name}.json",
            lambda cubin=cubin: compact(run_nvdisasm(tools.nvdisasm, cubin.read_bytes())).encode(),
            force,
        )
    for capability in (90, 100):
        write(f"triton.sm_{capability}.ptx", lambda sm=capability: make_triton_ptx(sm).encode(), force)


if __name__ == "__main__":
    main()
