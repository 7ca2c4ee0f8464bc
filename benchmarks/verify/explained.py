"""Kernels that differ with ptxas 12.4.131: is a known bug the only cause?

    python -m benchmarks explained FOLDER --fla LIBRARY/fla --tutorials COPY    # needs torch and Triton, no GPU

Five kernels, compiled for sm_90a: three of flash-linear-attention's path attention, this project's attention for fp8,
and the matrix product of Triton's tutorial that makes TMA descriptors on the GPU. Each is assembled as it is, and in a
form that goes around the bug and means the same:

- wgmma-shared-descriptor: a descriptor of its own for each `wgmma` that meets the pattern. Its number is the same, but
  ptxas cannot know that, since %ctaid.z is added, which is 0.
- fp8-mma-in-place: registers of its own for each result.
- the stride of `tensormap.replace`, divided by 16. Only 12.4.131 gets this form: newer ones divide themselves.

If the bug is the cause, all builds of that form store what 12.8.93 does. FOLDER gets a folder for each kernel:
`launch.json`, `VERSION.cubin` and `VERSION-own.cubin`. verify_h200.py runs them (--explained FOLDER).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tritonhook.ptx.miscompiles import MISCOMPILATIONS, places
from tritonhook.ptx.module import Ptx, newest_version, retarget, version_for

RESULT = None
VERSIONS = ("12.8.93", "12.4.131", "12.6.85", "13.5.37")  # the reference first
OWN = "-own"
_BUGS = {bug.name: bug for bug in MISCOMPILATIONS}
_T, _HEADS, _DEPTH = 256, 2, 64
_SIZES = {"K": _DEPTH, "V": _DEPTH, "BK": _DEPTH, "BV": _DEPTH, "BT": 64, "S": 512, "G": 1, "H": _HEADS, "HQ": _HEADS}
_TYPES = {"h": "fp16", "b": "bf16", "f": "fp32"}
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_ELEMENTS = {
    "hc_suffix": _T // 64 * _HEADS * _DEPTH**2,
    "dhc_whole": _HEADS * _DEPTH**2,
    **dict.fromkeys(("L", "D", "beta", "dbeta"), _T * _HEADS),
}
KERNELS: dict[str, tuple[str, str, tuple[int, int, int], dict[str, int]]] = {
    # name: module, tensors with the letter of their type, grid, Triton's options
    "chunk_cumprod_householder_bwd_kernel": (
        "cumprod_householder_bwd",
        "hc_suffix:h dhc_whole:f k:b dk:f w1:b w2:b dw1:f dw2:f dk_new:f",
        (1, 2, 1),
        {"num_warps": 4, "num_stages": 2},
    ),
    "parallel_path_bwd_intra_chunk_kernel": (
        "parallel_path_bwd_intra",
        "q:b k:b v:b w1:b w2:b L:f D:f dq:f dq_new:b dk:f dv:f dw1:f dw2:f do:b",
        (4, 2, 1),
        {},
    ),
    "intra_chunk_preprocess_bwd_kernel": (
        "intra_chunk_preprocess_bwd",
        "q:b k:b w:b w2:b beta:f AT:b dA_local:b dq:b dq_new:b dk:f dk_new:b dw:b dbeta:b dw1:f dw2:f",
        (4, 2, 1),
        {"num_stages": 3},
    ),
}


def own_descriptors(ptx: Ptx) -> str:
    """The text of a module in which every `wgmma` that meets the pattern has a descriptor that ptxas cannot know."""
    lines = ptx.text.splitlines()
    for place in places(ptx, [_BUGS["wgmma-shared-descriptor"]]):
        at = place.line - 1
        before, descriptor, after = re.fullmatch(r"(.*\}, \{[^}]*\}, )(%rd\d+)(,.*)", lines[at]).groups()
        lines[at] = (
            "{ .reg .b32 %low; .reg .b64 %zero, %own; mov.u32 %low, %ctaid.z; cvt.u64.u32 %zero, %low; "
            f"add.s64 %own, {descriptor}, %zero; {before}%own{after} }}"
        )
    return "\n".join(lines) + "\n"


def own_results(ptx: Ptx) -> str:
    """The text of a module in which the result of every fp8 `mma` has registers of its own."""
    lines = ptx.text.splitlines()
    for place in places(ptx, [_BUGS["fp8-mma-in-place"]]):
        opcode, result, rest = re.fullmatch(r"\s*(mma\S+) \{([^}]*)\}(,.*)", lines[place.line - 1]).groups()
        moves = " ".join(f"mov.b32 {name.strip()}, %own{at};" for at, name in enumerate(result.split(",")))
        own = "%own0, %own1, %own2, %own3"
        lines[place.line - 1] = f"{{ .reg .b32 %own<4>; {opcode} {{{own}}}{rest} {moves} }}"
    return "\n".join(lines) + "\n"


def divided_strides(ptx: Ptx) -> str:
    """The text of a module in which `tensormap.replace` gets its strides divided by 16."""
    return re.sub(
        r"(?m)^\s*((?:@!?%p\d+ )?tensormap\.replace\.tile\.global_stride\S* .*, )(%rd\d+);",
        r"{ .reg .b64 %own; shr.u64 %own, \2, 4; \1%own; }",
        ptx.text,
    )


def compiled(fla: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each kernel: its name, Triton's compiled kernel, and its launch as JSON values. fla: the library's folder."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    _import_kernels_only(fla)
    for name, (module, tensors, grid, options) in KERNELS.items():
        kernel = getattr(import_module(f"fla.ops.path_attn.{module}"), name)
        while not isinstance(kernel, triton.runtime.jit.JITFunction):
            kernel = kernel.fn
        given = {tensor: _TYPES[letter] for tensor, letter in (one.split(":") for one in tensors.split())}
        numbers = {"T": "i32", "scale": "fp32"}
        signature = {
            one: f"*{given[one]}" if one in given else numbers.get(one, "constexpr") for one in kernel.arg_names
        }
        known = {
            one: _SIZES.get(one, False if one.isupper() else None)
            for one, kind in signature.items()
            if kind == "constexpr"
        }
        aligned = {(at,): [["tt.divisibility", 16]] for at, one in enumerate(signature) if one in given}
        made = triton.compile(
            ASTSource(fn=kernel, signature=signature, constexprs=known, attrs=aligned),
            target=GPUTarget("cuda", 90, 32),
            options=options,
        )
        values = {
            "T": {"name": "T", "type": "i32", "value": _T},
            "scale": {"name": "scale", "type": "fp32", "value": 0.125},
        }
        passed = [
            values.get(one) or {"name": one, "dtype": _DTYPES[given[one]], "shape": [_elements(one)]}
            for one, kind in signature.items()
            if kind != "constexpr"
        ]
        scratch = len(Ptx(made.asm["ptx"]).parameters(name)) - len(passed)
        launch = {
            "kernel": name,
            "grid": list(grid),
            "block": [32 * made.metadata.num_warps],
            "shared": made.metadata.shared,
            "parameters": [*passed, *({"kind": "scratch"} for _ in range(scratch))],
        }
        yield name, made, launch


def attention() -> tuple[str, str, dict[str, Any]]:
    """This project's attention for fp8: name, PTX, and its launch as JSON values."""
    from gluon_kernels.mma import config
    from gluon_kernels.offline import compile_offline

    ours = config.default_config(90, "fp8e4nv", 128, None, 4096)
    made = compile_offline(ours, 90, {"ptx_version": 84})
    ptx = made.asm["ptx"].rstrip("\0")
    (name,) = Ptx(ptx).entries
    heads, length, section = 2, 512, 2
    elements = heads * length * 128
    tensors = {**dict.fromkeys("qkv", "float8_e4m3fn"), "o": "bfloat16", "lse": "bfloat16"}
    sizes = [length, length, 0, heads, heads, 1, section, *[0, length * 128 // 16] * 3, 0, length * 128 // 8]
    launch = {
        "kernel": name,
        "grid": [8],
        "block": [32 * made.metadata.num_warps],
        "shared": made.metadata.shared,
        "parameters": [
            *({"name": one, "dtype": dtype, "shape": [elements]} for one, dtype in tensors.items()),
            {"name": "scale", "type": "fp32", "value": 128**-0.5},
            *({"name": f"size{at}", "type": "i32", "value": value} for at, value in enumerate(sizes)),
        ],
    }
    scratch = len(Ptx(ptx).parameters(name)) - len(launch["parameters"])
    launch["parameters"] += [{"kind": "scratch"}] * scratch
    return name, ptx, launch


def matmul(tutorials: Path) -> tuple[str, str, dict[str, Any]]:
    """The matrix product of Triton's tutorial with descriptors that it makes on the GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name = "matmul_kernel_descriptor_persistent"
    text = (tutorials / "09-persistent-matmul.py").read_text()
    functions = [
        ast.unparse(ast.FunctionDef(**{**vars(node), "decorator_list": [ast.parse("triton.jit", mode="eval").body]}))
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name in ("_compute_pid", name)
    ]
    source = tutorials / "matmul_alone.py"  # without the rest of the tutorial, which needs a GPU
    source.write_text("\n\n".join(["import triton", "import triton.language as tl", *functions]) + "\n")
    sys.path.insert(0, str(tutorials))
    kernel = import_module("matmul_alone").__dict__[name]
    blocks = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "NUM_SMS": 132}
    known = {**blocks, "EPILOGUE_SUBTILE": False, "WARP_SPECIALIZE": False, "FLATTEN": True}
    numbers = dict.fromkeys("MNK", "i32")
    signature = {one: "*fp16" if one.endswith("_ptr") else numbers.get(one, "constexpr") for one in kernel.arg_names}
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(6)}
    made = triton.compile(
        ASTSource(fn=kernel, signature=signature, constexprs=known, attrs=aligned), target=GPUTarget("cuda", 90, 32)
    )
    size = 512
    passed = [
        *({"name": one, "dtype": "float16", "shape": [size * size]} for one in "abc"),
        *({"name": one, "type": "i32", "value": size} for one in "MNK"),
    ]
    scratch = [{"kind": "scratch", "size": made.metadata.global_scratch_size * 16}, {"kind": "scratch"}]
    ptx = made.asm["ptx"]
    launch = {
        "kernel": name,
        "grid": [16],
        "block": [32 * made.metadata.num_warps],
        "shared": made.metadata.shared,
        "parameters": [*passed, *scratch[: len(Ptx(ptx).parameters(name)) - len(passed)]],
    }
    return name, ptx, launch


def _elements(tensor: str) -> int:
    return _ELEMENTS.get(tensor, _T * _HEADS * _DEPTH)


def _import_kernels_only(fla: Path) -> None:
    """Let the modules of the kernels be imported without what the library does when it starts."""
    sys.path.insert(0, str(fla.parent))
    for name in ("fla", "fla.ops", "fla.ops.path_attn"):
        module = types.ModuleType(name)
        module.__path__ = [str(fla.parent / name.replace(".", "/"))]
        sys.modules[name] = module
    sys.modules["fla.utils"] = types.SimpleNamespace(check_shared_mem=None)  # type: ignore[assignment]
    sys.modules["fla.ops.utils"] = types.SimpleNamespace(  # type: ignore[assignment]
        prepare_chunk_indices=None, prepare_chunk_offsets=None
    )


def make(folder: Path, fla: Path, tutorials: Path) -> None:
    for name, made, launch in compiled(fla):
        ptx = Ptx(made.asm["ptx"])
        write(folder / name, ptx, launch, dict.fromkeys(VERSIONS, own_descriptors(ptx)))
    name, text, launch = attention()
    write(folder / name, Ptx(text), launch, dict.fromkeys(VERSIONS, own_results(Ptx(text))))
    name, text, launch = matmul(tutorials)
    write(folder / name, Ptx(text), launch, {"12.4.131": divided_strides(Ptx(text))})


def write(place: Path, ptx: Ptx, launch: dict[str, Any], own: dict[str, str]) -> None:
    """Assemble a kernel by all versions as it is, and by some in its own form."""
    from tritonhook.ptxas.discovery import find_ptxas
    from tritonhook.ptxas.toolchain import toolchain_of

    place.mkdir(parents=True, exist_ok=True)
    (place / "launch.json").write_text(json.dumps(launch))
    forms = [
        *((version, "", ptx.text) for version in VERSIONS),
        *((version, OWN, text) for version, text in own.items()),
    ]
    for version, ending, text in forms:
        form = retarget(Ptx(text), ptx.target, version_for(ptx.version, ptx.target, newest_version(version)))
        cubin = toolchain_of(find_ptxas(version)).assemble_or_raise(form, ["--fmad=false"]).cubin
        (place / f"{version}{ending}.cubin").write_bytes(cubin.data)
    print(place.name, len(forms), "builds", flush=True)


def execute(folder: Path, executor: Any) -> list[dict[str, Any]]:
    """Run all builds of each kernel: what each stores, compared with the reference. executor: verify's Executor."""
    from tritonhook.capture.launches.schema import from_json
    from tritonhook.verify.model import NORMAL, Build, Order

    rows = []
    for place in sorted(path.parent for path in folder.glob("*/launch.json")):
        name = place.name
        launch = from_json((place / "launch.json").read_bytes(), name)
        every = [f"{version}{ending}" for ending in ("", OWN) for version in VERSIONS]
        labels = [label for label in every if (place / f"{label}.cubin").exists()]
        builds = tuple(Build(label, place / f"{label}.cubin", name) for label in labels)
        ran = executor.run(Order(launch, builds, (NORMAL,), 4, place))
        parameters = [one.name for one in launch.parameters if hasattr(one, "buffer")]
        stored = {one.build: _said(one, parameters) for one in ran}
        rows.append({"kernel": name, "stored": stored})
    return rows


def _said(ran: Any, parameters: list[Any]) -> Any:
    """What a build stores beside the reference: elements that differ, by argument, with their largest distance."""
    if ran.failure:
        return f"failed: {ran.failure.text}"
    unsteady = {found.buffer for found in ran.unsteady}
    return {
        str(parameters[found.buffer]): {"differing": found.differing, "of": found.elements, "share": found.share}
        | ({"unsteady": True} if found.buffer in unsteady else {})
        for found in ran.differences
    } or "same"


NEEDS = ("torch", "triton", "fla", "TRITON_TUTORIALS")
QUICK = ("{folder}", "--fla", "fla", "--tutorials", "tutorials")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fla", type=Path, required=True, help="the folder `fla` of flash-linear-attention")
    parser.add_argument("--tutorials", type=Path, required=True, help="the folder of Triton's tutorials; a copy")


def run(arguments: argparse.Namespace) -> None:
    make(arguments.folder, arguments.fla, arguments.tutorials)
