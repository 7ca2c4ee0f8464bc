"""Makes tests/golden: the cubins that ptxas makes of the PTX modules in ptx/, and their disassembly.

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


def module(template: str, **names: str) -> str:
    """A module of golden/ptx for an architecture, with these names in its words of capitals."""
    text = (GOLDEN / "ptx" / f"{template}.ptx").read_text()
    for word, name in names.items():
        text = text.replace(word, name)
    return text


PLAIN, CUTLASS = {"NAME": "cutlasz_k"}, {"NAME": "cutlass_k"}
MODULES = {
    **{
        f"{arch}.exp.{kind}": module("exp", ARCH=arch, **names)
        for arch in ("sm_80", "sm_90a", "sm_120a")
        for kind, names in (("plain", PLAIN), ("cutlass", CUTLASS))
    },
    "sm_90a.exp.renamed": module("exp", ARCH="sm_90a", NAME="a_much_longer_name_k"),
    "sm_90a.fma.plain": module("fma", ARCH="sm_90a", **PLAIN),
    "sm_90a.fma.cutlass": module("fma", ARCH="sm_90a", **CUTLASS),
    "sm_100a.tcgen05.plain": module("tcgen05", ARCH="sm_100a", **PLAIN),
    "sm_100a.tcgen05.cutlass": module("tcgen05", ARCH="sm_100a", **CUTLASS),
    "sm_120a.tensor_load.cluster": module("tensor_load", ARCH="sm_120a", NAME="load", SPACE="cluster"),
    "sm_120a.tensor_load.cta": module("tensor_load", ARCH="sm_120a", NAME="load", SPACE="cta"),
    "sm_80.module": module("module", ARCH="sm_80"),
    "sm_90a.module": module("module", ARCH="sm_90a"),
}

# What `sass` and `diff` read without nvdisasm.
DISASSEMBLED = [name for name in MODULES if name not in ("sm_120a.tensor_load.cta", "sm_80.module")]

TRITON_SOURCE = (GOLDEN / "ptx" / "triton_kernel.py.txt").read_text()


def make_triton_ptx(capability: int) -> str:
    """Real PTX with debug info. The source runs from no file, so that no path of a machine gets in."""
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
