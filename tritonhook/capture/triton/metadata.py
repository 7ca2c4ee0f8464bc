"""Read facts about Triton and its kernels: version, ptxas and its command line, and a Capture made from a kernel's
metadata."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tritonhook.capture.model import Assembler, Capture, Stage, is_binary_only
from tritonhook.errors import CaptureError

MINIMUM_TRITON = (3, 6)
# Keys that tritonhook adds to Triton's metadata of a kernel. Triton's cache keeps them, so that a later cache hit has
# them too.
META_FROM = "tritonhook_rewritten_from"
META_NOTE = "tritonhook_note"
META_KEYS = "tritonhook_keys"  # digest of the changes that each session makes
META_PTXAS = "tritonhook_ptxas"  # path, version and arguments of the ptxas, if a session chose it
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # part of Python's default repr of an object
_CODE_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ptx_version", "ptx_options")


def triton_version() -> str:
    import triton

    return str(triton.__version__)


def check_triton() -> None:
    """Check Triton's version. Raises CaptureError if Triton is not installed, cannot be imported, or is too old."""
    try:
        version = triton_version()
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise CaptureError("triton is not installed in this Python; `pip install 'triton>=3.6'`") from None
        raise CaptureError(
            f"triton cannot be imported: {type(error).__name__}: {error}; for details: `python -c 'import triton'`"
        ) from error
    if _major_minor(version) < MINIMUM_TRITON:
        raise CaptureError(f"triton {version} is too old; tritonhook needs triton 3.6 or newer")


def constants_of(source: Any) -> dict[str, Any] | None:
    """Return the constexprs of a source object of triton.compile, by name; None for a source without constexprs, e.g.
    an IR file."""
    names, constants = getattr(getattr(source, "fn", None), "arg_names", None), getattr(source, "constants", None)
    if names is None or constants is None:
        return None
    return {_path_name(path, names): value for path, value in constants.items()}


def _path_name(path: Any, names: Any) -> str:
    """Make the name of a constexpr from its path, e.g. "x.1" from (0, 1): the second item of the first argument, x."""
    first, *rest = path if isinstance(path, tuple) else (path,)
    return ".".join([str(names[first] if isinstance(first, int) else first), *map(str, rest)])


def capture_of(
    kernel: str,
    metadata: Mapping[str, Any],
    files: Mapping[Stage, str],
    cache_hit: bool,
    origin: str | None,
    constants: Mapping[str, Any] | None = None,
) -> Capture:
    """Make a Capture from Triton's metadata; its artifacts are empty texts. files: path by stage. origin: the kernel's
    own name, if it was renamed. constants: its constexprs."""
    values = {name: _plain(value) for name, value in metadata.items()}
    target = metadata["target"]
    is_cuda = target.backend == "cuda"
    return Capture(
        kernel=kernel,
        hash=str(metadata["hash"]),
        arch=arch_name(target.arch) if is_cuda else str(target.arch),
        artifacts=dict.fromkeys(files, ""),
        assembler=_assembler_of_kernel(target.arch, metadata) if is_cuda else Assembler(),
        options=_options(metadata) | ({} if constants is None else {"constants": _plain(dict(constants))}),
        metadata=values,
        cache_hit=cache_hit,
        rewritten_from=origin,
        note=metadata.get(META_NOTE)
        or ("Triton's cache had only the binary (TRITON_STORE_BINARY_ONLY)" if is_binary_only(files) else None),
    )


def _plain(value: Any) -> Any:
    """Convert a value of Triton's metadata or a constexpr to a JSON value that is equal in every process. Functions,
    classes and Enum members become their names, other objects their str() without addresses."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if type(value).__name__ == "constexpr":
        return _plain(value.value)
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else _ADDRESS.sub("", str(value))


def _options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    from triton import knobs

    return {
        "fp_fusion": metadata.get("enable_fp_fusion"),
        "line_info": not knobs.compilation.disable_line_info,
        "ptxas_optimises": not knobs.nvidia.disable_ptxas_opt,
        **{name: metadata[name] for name in _CODE_OPTIONS if name in metadata},
    }


def arch_name(capability: int) -> str:
    """Return the target of a compute capability, e.g. "sm_90a" for 90."""
    # Triton's sm_arch_from_capability uses the "a" variant from Hopper on, too.
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def _assembler_of_kernel(arch: int, metadata: Mapping[str, Any]) -> Assembler:
    """Return the ptxas that assembled a kernel: the session's ptxas if the metadata names it, else Triton's ptxas."""
    if META_PTXAS in metadata:
        path, version, arguments = metadata[META_PTXAS]
        return Assembler(path, version, tuple(arguments))
    return assembler_of(arch, metadata)


def assembler_of(arch: int, options: Mapping[str, Any]) -> Assembler:
    """Return Triton's ptxas for a compute capability, with the arguments that Triton's make_cubin passes. options:
    options of the compile, e.g. `enable_fp_fusion`.

    Triton does not keep the command line, so it is built here in the same way as in make_cubin. A test assembles
    captures again and compares the bytes.
    """
    from triton import knobs
    from triton.backends.nvidia import compiler as backend

    from tritonhook.ptxas.tool import Tool, inspect_tool

    arguments: list[str] = []
    if knobs.compilation.disable_line_info:
        arguments += ["-lineinfo", "-suppress-debug-info"]
    elif knobs.nvidia.disable_ptxas_opt:
        arguments += ["-g"]
    else:
        arguments += ["-lineinfo"]
    arguments += [] if options.get("enable_fp_fusion") else ["--fmad=false"]
    arguments += ["-v"]
    arguments += ["--opt-level", "0"] if knobs.nvidia.disable_ptxas_opt else []
    arguments += ["--regAllocOptLevel=2"] if release() >= (3, 7) else []
    arguments += options["ptx_options"].split(" ") if options.get("ptx_options") else []
    modes = str(options.get("instrumentation_mode"))
    if release() >= (3, 8) and ("consan" in modes or "fpsan" in modes) and not knobs.nvidia.disable_ptxas_opt:
        arguments += ["--opt-level", "1"]
    arguments += [f"--gpu-name={arch_name(arch)}"]
    path = backend.get_ptxas(arch).path
    # Triton's get_ptxas_version would return a cached version; but torch.compile can change the ptxas later.
    tool = inspect_tool(Path(path), "Triton")
    return Assembler(path, tool.version if isinstance(tool, Tool) else None, tuple(arguments))


def ptxas_versions() -> list[str | None]:
    """Return the versions of Triton's two ptxas: the one for GPUs up to Hopper and the one for Blackwell. A version is
    None if not known."""
    return [assembler_of(arch, {}).version for arch in (90, 100)]


@functools.lru_cache(maxsize=1)
def release() -> tuple[int, ...]:
    return _major_minor(triton_version())


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
