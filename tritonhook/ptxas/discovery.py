"""Find ptxas and nvdisasm: given by the user, added by version, in wheels, in Triton, in the CUDA toolkit, on PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tritonhook._util.versions import is_version, version_key
from tritonhook.errors import ToolError
from tritonhook.ptxas.install import added_binaries
from tritonhook.ptxas.tool import Tool, inspect_tool, is_same_file, tool_at


def find_ptxas(wanted: str | os.PathLike[str] | None = None) -> Tool:
    """Return the ptxas to use.

    wanted: a version ("12.8.93"), a path, or None for $TRITONHOOK_PTXAS, else the newest there is.
    Raises ToolError with everything that was tried.
    """
    if isinstance(wanted, os.PathLike):
        return tool_at(Path(wanted), "given")
    if not isinstance(wanted, (str, type(None))):
        raise ToolError(f"{wanted!r}: not a ptxas; give a path, or a version as text such as '12.8.93'")
    wanted = wanted or os.environ.get("TRITONHOOK_PTXAS") or None
    if wanted and not is_version(wanted):
        return tool_at(Path(wanted), "given")
    tried: list[str] = []
    tools = list(available_ptxas(tried))
    if wanted:
        tried += [f"{tool.path}: version {tool.version}" for tool in tools]
        tools = [tool for tool in tools if tool.version == wanted or tool.version.startswith(f"{wanted}.")]
    if not tools:
        raise _not_found(wanted, tried)
    return max(tools, key=lambda tool: version_key(tool.version))


def find_recorded(path: str | None, version: str | None, trust: bool = False) -> Tool | None:
    """Return the ptxas that a file names, e.g. a capture; None if the file names none.

    The file may come from somebody else, so that nothing at `path` is run. The tool is one of `available_ptxas`:
    the one with the same hash as the file at `path`, else one of the same version. trust: the user trusts the file;
    then the program at `path` is taken.
    Raises ToolError if none of ours is the one.
    """
    named = file_at(path)
    if named is not None and trust:
        return tool_at(named, "trusted")
    if not path and version is None:
        return None
    tools = list(available_ptxas())
    same = (tool for tool in tools if named is not None and is_same_file(named, tool.path))
    ours = next(same, None) or next((tool for tool in tools if tool.version == version), None)
    if ours is not None:
        return ours
    fetch = version is not None and is_version(version)
    remedies = [f"fetch it with `tritonhook ptxas add {version}`"] if fetch else []
    remedies.append("take another one with --ptxas VERSION")
    if named is not None:
        remedies.append("run it with --trust, if you trust the file's origin")
    raise ToolError(
        f"ptxas {version or 'of unknown version'} ({path or 'path not known'}), named by the input, is none of the "
        f"programs known here; {', or '.join(remedies)}"
    )


def file_at(path: str | None) -> Path | None:
    """The path that a file names, if a regular file is there; None for any other text."""
    return Path(path) if path and os.path.isfile(path) else None  # noqa: PTH113  (Path raises for some texts)


def _not_found(wanted: str | None, tried: list[str]) -> ToolError:
    is_partial = wanted is not None and wanted.count(".") != 2
    command = f"`tritonhook ptxas add {'12.8.93' if wanted is None or is_partial else wanted}`"
    remedy = f"get one by its whole version, as with {command}" if is_partial else f"get it with {command}"
    what = f"ptxas {wanted}" if wanted else "ptxas"
    return ToolError(f"{what}: not found; {remedy}. Tried:\n  " + "\n  ".join(tried or ["nothing"]))


def find_nvdisasm() -> Tool:
    """Return the nvdisasm to use: $TRITONHOOK_NVDISASM, a wheel's, Triton's, the CUDA toolkit's, the one on PATH.

    Raises ToolError with everything that was tried.
    """
    given = os.environ.get("TRITONHOOK_NVDISASM")
    if given:
        return tool_at(Path(given), "$TRITONHOOK_NVDISASM")
    tried: list[str] = []
    tool = next(available_nvdisasm(tried), None)
    if tool is None:
        listed = "\n  ".join(tried or ["nothing"])
        raise ToolError(f"nvdisasm: not found; `pip install nvidia-cuda-nvdisasm`. Tried:\n  {listed}")
    return tool


def available_ptxas(tried: list[str] | None = None) -> Iterator[Tool]:
    """Yield every ptxas that can be used, each once: those from `ptxas add`, from wheels, Triton's, the CUDA
    toolkit's, the one on PATH. tried: takes a line for each place that has none, with the reason."""
    tried = [] if tried is None else tried
    yield from _usable([*added_binaries(tried), *_candidates("ptxas"), *_candidates("ptxas-blackwell")], tried)


def available_nvdisasm(tried: list[str] | None = None) -> Iterator[Tool]:
    """Yield every nvdisasm that can be used, each once, the one that is taken first. tried: as of `available_ptxas`."""
    yield from _usable(_candidates("nvdisasm"), [] if tried is None else tried)


def _usable(candidates: Iterable[tuple[Path, str]], tried: list[str]) -> Iterator[Tool]:
    """The tools among (path, source) pairs, a program with two paths once."""
    seen: set[Path] = set()
    for path, source in candidates:
        real = path.resolve()
        if real in seen:
            continue
        tool = inspect_tool(path, source)
        if isinstance(tool, Tool):
            seen.add(real)
            yield tool
        else:
            tried.append(f"{path}: {tool}")


def _candidates(program: str) -> Iterator[tuple[Path, str]]:
    for folder, source in [*_wheel_folders(), *_triton_folders(), *_toolkit_folders()]:
        yield folder / program, source
    if path := shutil.which(program):
        yield Path(path), "PATH"


def _wheel_folders() -> Iterator[tuple[Path, str]]:
    for entry in sys.path:
        for folder in ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin", "nvidia/cuda_nvcc/bin"):
            path = Path(entry or ".", folder)
            if path.is_dir():
                yield path, "wheel"


def _triton_folders() -> Iterator[tuple[Path, str]]:
    from importlib.util import find_spec

    spec = find_spec("triton")  # finds the package without importing it
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location, "backends", "nvidia", "bin"), "Triton"


def _toolkit_folders() -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value, "bin"), f"${variable}"
    yield Path("/usr/local/cuda/bin"), "CUDA toolkit"
