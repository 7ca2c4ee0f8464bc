"""Real kernels, compiled without a GPU and without torch: Triton's tutorials, our attentions and examples.

`compile_all` runs in a child process, so that a caller chooses the version of Triton. Nothing of the tutorials is kept
here: `tutorials` needs the folder python/tutorials of Triton's repository at COMMIT, and checks each file's hash.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.common import REPOSITORY, module_at

COMMIT = "6cc4505027d7b39fe18a44a7f89085b8babb7400"  # of github.com/triton-lang/triton, near 3.6.0
_FILES = {  # tutorial: SHA-256 of its file
    "01-vector-add": "842430949e0ccde4fbce07606cce3ac4bac36bf21b2b12619a31b795ca4029b3",
    "02-fused-softmax": "8a65b696d5b02a3900380395ecd883671afeb66328db108f55622ed8853a05da",
    "03-matrix-multiplication": "f88a9506694c58d483ad3cdb4aa672c23df0300803bcfaca13b9396184825008",
    "04-low-memory-dropout": "43ea69769349d20654fe7bb983e60ad9c38591d195891caf3a56053d9b0ab788",
    "05-layer-norm": "31cda7bf7bb9b637ea662b789188d37ff5981c3973626d4e2a293db633f3bb87",
    "06-fused-attention": "5b16be48b7b781ef018931c789b191f3390886ac479bb5df8a3418e5612ab317",
    "07-extern-functions": "c9412656298e9bd737d944ac94c5dd6ec427cd30b7657c09d36fa5495ce0d4ba",
    "08-grouped-gemm": "16647534382b116fda2a034acef5fb59bba8d803df56863596f4bc7b444abb16",
    "09-persistent-matmul": "26b19072955dd4472f9821d68c97943f625137f89850be1c5d9451cae3011aa3",
}
ARCHS = (80, 90, 120)
_HALF, _FLOAT = "*fp16", "*fp32"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compile of a kernel. types: of the arguments, by name. divisible: arguments known to be multiples of 16."""

    module: str
    function: str
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    archs: tuple[int, ...] = ARCHS


def _args(pointers: str, pointer: str, integers: str = "", **others: str) -> dict[str, str]:
    return dict.fromkeys(pointers.split(), pointer) | dict.fromkeys(integers.split(), "i32") | others


def _variants(kernel: Kernel, *changes: Mapping[str, Any]) -> Iterator[Kernel]:
    """The kernel with other constants and options."""
    for change in changes:
        options = {name: value for name, value in change.items() if name in ("num_warps", "num_stages")}
        constants = {name: value for name, value in change.items() if name not in options}
        yield replace(kernel, constants={**kernel.constants, **constants}, options={**kernel.options, **options})


_STRIDES = "M N K stride_am stride_ak stride_bk stride_bn stride_cm stride_cn"
_MATMUL = _args("a_ptr b_ptr c_ptr", _HALF, _STRIDES)
_DESCRIPTOR = _args("a_ptr b_ptr c_ptr", _HALF, "M N K")
_TILE = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64}
_SMALL = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
_GROUP = {"GROUP_SIZE_M": 8}


def tutorial_kernels() -> Iterator[Kernel]:
    yield from _elementwise()
    yield from _layer_norms()
    yield from _products()
    yield from _attentions()


def _elementwise() -> Iterator[Kernel]:
    block = {"BLOCK_SIZE": 1024}
    yield Kernel("01-vector-add", "add_kernel", _args("x_ptr y_ptr output_ptr", _FLOAT, "n_elements"), block)
    rows = _args("output_ptr input_ptr", _FLOAT, "input_row_stride output_row_stride n_rows n_cols")
    for size in (1024, 8192):  # here num_stages is an argument of the kernel
        constants = {"num_stages": 4, "BLOCK_SIZE": size}
        yield Kernel("02-fused-softmax", "softmax_kernel", rows, constants, {"num_warps": 8})
    seeded = _args("x_ptr output_ptr", _FLOAT, "n_elements seed", p="fp32")
    yield Kernel("04-low-memory-dropout", "_seeded_dropout", seeded, block)
    keep = _args("x_ptr output_ptr", _FLOAT, "n_elements", x_keep_ptr="*i32", p="fp32")
    yield Kernel("04-low-memory-dropout", "_dropout", keep, block)
    yield (asin := Kernel("07-extern-functions", "asin_kernel", _args("x_ptr y_ptr", _FLOAT, "n_elements"), block))
    yield replace(asin, types=_args("x_ptr y_ptr", "*fp64", "n_elements"), constants={"BLOCK_SIZE": 256})


def _layer_norms() -> Iterator[Kernel]:
    forward = _args("X Y W B", _HALF, "stride N", Mean=_FLOAT, Rstd=_FLOAT, eps="fp32")
    yield Kernel("05-layer-norm", "_layer_norm_fwd_fused", forward, {"BLOCK_SIZE": 8192}, {"num_warps": 8})
    backward = _args("DX DY DW DB X W", _HALF, "stride N", Mean=_FLOAT, Rstd=_FLOAT, Lock="*i32")
    tile = {"GROUP_SIZE_M": 64, "BLOCK_SIZE_N": 8192}
    yield Kernel("05-layer-norm", "_layer_norm_bwd_dx_fused", backward, tile, {"num_warps": 8})
    sums = _args("DW DB FINAL_DW FINAL_DB", _HALF, "M N")
    yield Kernel("05-layer-norm", "_layer_norm_bwd_dwdb", sums, {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 128})


def _products() -> Iterator[Kernel]:
    product = Kernel("03-matrix-multiplication", "matmul_kernel", _MATMUL, {**_GROUP, "ACTIVATION": ""})
    warps_8 = {"num_warps": 8, "num_stages": 3}
    leaky = {"ACTIVATION": "leaky_relu", "num_warps": 4, "num_stages": 4}
    yield from _variants(product, {**_TILE, **warps_8}, {**_SMALL, **leaky})
    persistent = {**_TILE, **_GROUP, "NUM_SMS": 132, **warps_8}
    third = Kernel("09-persistent-matmul", "matmul_kernel_persistent", _MATMUL, {})
    yield from _variants(third, persistent)
    fourth = Kernel("09-persistent-matmul", "matmul_kernel_descriptor_persistent", _DESCRIPTOR, {})
    yield from _variants(fourth, {**persistent, "EPILOGUE_SUBTILE": True, "WARP_SPECIALIZE": False, "FLATTEN": False})
    grouped = _args(
        "group_a_ptrs group_b_ptrs group_c_ptrs", "*i64", "group_size", group_gemm_sizes="*i32", g_lds="*i32"
    )
    fifth = Kernel("08-grouped-gemm", "grouped_matmul_kernel", grouped, {"NUM_SM": 84})
    yield from _variants(fifth, {**_SMALL, "num_warps": 4}, {**_TILE, "num_warps": 8})


def _attentions() -> Iterator[Kernel]:
    file = "06-fused-attention"
    types = _args("desc_q desc_k desc_v desc_o", _HALF, "Z H N_CTX", sm_scale="fp32", M=_FLOAT)
    fixed = {"FP8_OUTPUT": False, "warp_specialize": False, "IS_HOPPER": False, "num_stages": 2}
    tiles = {64: {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4}, 128: {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8}}
    for head_dim, tile in tiles.items():
        for stage in (1, 3):
            yield from _variants(
                Kernel(file, "_attn_fwd", types, {}), {**fixed, **tile, "HEAD_DIM": head_dim, "STAGE": stage}
            )
    before = _args("O DO", _HALF, "Z H N_CTX", Delta=_FLOAT)
    yield Kernel(file, "_attn_bwd_preprocess", before, {"BLOCK_M": 128, "HEAD_DIM": 64})
    strides = "stride_z stride_h stride_tok stride_d H N_CTX"
    back = _args("Q K V DO DQ DK DV", _HALF, strides, sm_scale="fp32", M=_FLOAT, D=_FLOAT)
    blocks = {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32, "BLK_SLICE_FACTOR": 2}
    backward = Kernel(file, "_attn_bwd", back, {**blocks, "CAUSAL": True}, {"num_warps": 4, "num_stages": 2})
    yield from _variants(backward, {"HEAD_DIM": 64})


# --- compiling -----------------------------------------------------------------------------------


def check_tutorials(folder: Path) -> None:
    """Raises SystemExit where a file is missing, or not the one that was published."""
    for name, sha256 in _FILES.items():
        path = folder / f"{name}.py"
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise SystemExit(
                f"{path}: not Triton's tutorial; TRITON_TUTORIALS must be python/tutorials of github.com/triton-lang/"
                f"triton at commit {COMMIT}"
            )


def load_tutorial(path: Path, edits: Mapping[str, str] | None = None) -> ModuleType:
    """The kernels of a tutorial, and nothing that asks for a GPU or torch. edits: text to replace, and by what."""
    source = path.read_text()
    for old, new in (edits or {}).items():
        if old not in source:
            raise SystemExit(f"{path}: has no {old!r} to change")
        source = source.replace(old, new)
    edited = path
    if edits:  # Triton reads the source again, so that it has to be in a file
        edited = Path(tempfile.mkdtemp()) / path.name
        edited.write_text(source)
    tree = ast.parse(source)
    tree.body = [statement for statement in tree.body if _is_needed(statement)]
    module = ModuleType(f"tutorial_{path.stem[:2]}")
    module.__file__ = str(edited)
    sys.modules[module.__name__] = module
    exec(compile(tree, str(edited), "exec"), module.__dict__)
    return module


def _is_needed(statement: ast.stmt) -> bool:
    """Whether it imports Triton or defines a kernel; of a kernel's decorators only triton.jit stays."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        names = [getattr(statement, "module", None) or "", *(alias.name for alias in statement.names)]
        return any(name.split(".")[0] == "triton" for name in names) and "torch" not in names
    if not isinstance(statement, ast.FunctionDef):
        return False
    is_kernel = any("triton.jit" in ast.unparse(decorator) for decorator in statement.decorator_list)
    if is_kernel:
        statement.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        for node in ast.walk(statement.decorator_list[0]):
            ast.copy_location(node, statement)
    return is_kernel


def compile_kernel(function: Any, kernel: Kernel, arch: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [*kernel.types, *kernel.constants]
    order = sorted(names, key=function.arg_names.index)
    signature = {name: kernel.types.get(name, "constexpr") for name in order}
    unit = ("stride_ak", "stride_bn", "stride_cn", "stride_d")  # contiguous: a constant 1, as a launch would find it
    constants = dict(kernel.constants)
    for name in unit:
        if name in signature:
            signature[name], constants[name] = "constexpr", 1
    known = [n for n, name in enumerate(order) if signature[name].startswith("*") or signature[name] == "i32"]
    attrs = {(n,): [["tt.divisibility", 16]] for n in known if order[n] not in ("H", "Z", "group_size", "seed")}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attrs)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=dict(kernel.options))


def compile_all(
    tutorials: Path,
    out: Path,
    archs: tuple[int, ...] = ARCHS,
    own: bool = True,
    edits: Mapping[str, Mapping[str, str]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Capture the kernels into a folder. Returns those that this Triton does not compile, with its reason.

    edits: by tutorial, text to replace. options: further options of each compile.
    """
    import tritonhook

    failed = []
    with tritonhook.session(out=out):
        modules = {name: load_tutorial(tutorials / f"{name}.py", (edits or {}).get(name)) for name in _FILES}
        for kernel in tutorial_kernels():
            if edits and kernel.module not in edits:
                continue
            function = getattr(modules[kernel.module], kernel.function)
            given = replace(kernel, options={**kernel.options, **(options or {})})
            for arch in archs:
                try:
                    compile_kernel(function, given, arch)
                except Exception as error:
                    failed.append(f"{kernel.function} sm_{arch}: {type(error).__name__}: {str(error)[:200]}")
        if own:
            failed += _compile_own()
    return failed


def _compile_own() -> list[str]:
    """The attentions and examples of this repository, and a matrix product for architectures whose ptxas draws."""
    import triton_kernels

    from gluon_kernels.offline import compile_offline

    failed = []
    archs, small = (80, 90, 100, 120), ("add_kernel", "multiply_kernel", "fused_kernel")
    jobs: dict[str, Callable[[], Any]] = {f"gemm sm_{a}": partial(triton_kernels.compile_gemm, a) for a in archs}
    for name in small:
        kernel = getattr(triton_kernels, name)
        jobs |= {f"{name} sm_{a}": partial(triton_kernels.compile_kernel, kernel, a) for a in archs}
    jobs |= {kind: partial(compile_offline, kernel=kind) for kind in ("mma", "hopper", "blackwell")}
    example = REPOSITORY / "examples" / "spilling_matmul.py"
    jobs["spilling_matmul"] = lambda: module_at(example, "spilling_matmul").compile_for_hopper()
    for name, job in jobs.items():
        try:
            job()
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    return failed


def main() -> None:
    """Child process: read what to compile as JSON from the first argument; print what failed as JSON."""
    given = json.loads(sys.argv[1])
    broken = given.pop("broken_pass", None)
    if broken:
        _disable_pass(broken)
    given["archs"] = tuple(given.get("archs") or ARCHS)
    failed = compile_all(Path(given.pop("tutorials")), Path(given.pop("out")), **given)
    print(json.dumps(failed))


def _disable_pass(name: str) -> None:
    """Make one pass of Triton's compiler do nothing, such as "ttgpuir.add_coalesce"."""
    from triton._C import libtriton

    place: Any = libtriton
    *path, last = name.split(".")
    for part in path:
        place = getattr(place, part)
    setattr(place, last, lambda *arguments: None)
