"""Get compiled kernels from this process, from the cache on disk, or from the compiler. Does not launch them.

A kernel is compiled once for each config. Lengths, heads and strides are arguments; new values never compile it again.
On disk a kernel is two files in the folder SM120_ATTN_CACHE, or else in the user's cache folder: <key>.o, the object
file that the DSL exports, and <key>.json with config, argument slots, ptxas version and the hash of the object. The key
covers the config, the sources that make the kernel, the DSL's libraries (which have ptxas inside), and the processor
that the host code is compiled for. With SM120_ATTN_CACHE=off nothing is kept on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from . import abi
from .build import KernelConfig, source_hash
from .compiler import HostFunction, compile_function, dsl_versions, import_dsl, warn_of_old_ptxas

FORMAT = 2  # format of the files on disk
SYMBOL = "sm120_attn"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that can be called: `entry(address)`, with the address of an abi.ArgumentBuffer(layout).

    ptxas: version that assembled it; None if unknown. cached: whether it was loaded from disk.
    alive: objects that must live as long as the code.
    """

    config: KernelConfig
    layout: abi.Layout
    ptxas: str | None
    cached: bool
    entry: Callable[[Any], Any]
    alive: Any


_compiled: dict[KernelConfig, Compiled] = {}
_lock = threading.RLock()


def get(config: KernelConfig) -> Compiled:
    """Get the kernel of this config. Raises ValueError if it cannot be built, ImportError without the DSL."""
    found = _compiled.get(config)
    if found is None:
        with _lock:
            found = _compiled.get(config)
            if found is None:
                found = _compiled[config] = _from_disk(config) or _compile(config)
    return found


def is_ready(config: KernelConfig) -> bool:
    """Check whether this process has loaded the kernel, so that a call neither compiles nor loads."""
    return config in _compiled


def is_cached(config: KernelConfig) -> bool:
    """Check whether the cache on disk has a record of the kernel."""
    folder = cache_folder()
    return folder is not None and (folder / f"{key_of(config)}.json").exists()


def prebuild(config: KernelConfig) -> None:
    """Compile a kernel into the cache on disk, if it is not there yet. Needs no GPU."""
    if not is_cached(config):
        _keep(config, compile_function(config))


def cache_folder() -> Path | None:
    """Return the folder of the cache on disk; None if the cache is off."""
    named = os.environ.get("SM120_ATTN_CACHE")
    if named == "off":
        return None
    if named:
        return Path(named)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sm120_attn"


@lru_cache(maxsize=4096)
def key_of(config: KernelConfig) -> str:
    kind: type = type(config)
    facts = {"config": asdict(config), "sources": source_hash(kind), **_environment()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _environment() -> dict[str, Any]:
    """Collect what a compiled kernel depends on besides its config and sources."""
    return {
        "format": FORMAT,
        "dsl": dsl_versions(),
        "libraries": os.environ.get("CUTE_DSL_LIBS"),  # selects another variant of the DSL's libraries
        "host": [platform.system(), platform.machine(), _processor()],
    }


def _processor() -> str | None:
    """Hash the processor's features, because the DSL compiles host code for them. None if they cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


def _compile(config: KernelConfig) -> Compiled:
    made = compile_function(config)
    warn_of_old_ptxas(made.ptxas)
    _keep(config, made)
    return loaded(config, made.slots, made.ptxas, False, made.function)


def loaded(
    config: KernelConfig, slots: tuple[abi.Slot, ...], ptxas: str | None, cached: bool, function: Any, *alive: Any
) -> Compiled:
    """Load a compiled function on all devices, and return it as a Compiled."""
    executor = function.to(None)
    return Compiled(config, abi.Layout(slots), ptxas, cached, executor.capi_func, (executor, function, *alive))


# --- the cache on disk -------------------------------------------------------------------------------------------


def _keep(config: KernelConfig, made: HostFunction) -> None:
    """Write a kernel to the cache on disk. A failure only warns, because the kernel can be compiled again."""
    folder = cache_folder()
    if folder is None:
        return
    _runtime_libraries()
    try:
        data = made.function.dump_to_object(SYMBOL)
        record = {
            "format": FORMAT,
            "name": config.name,
            "config": asdict(config),
            "ptxas": made.ptxas,
            "dsl": dsl_versions(),
            "object_sha256": hashlib.sha256(data).hexdigest(),
            "slots": abi.to_json(made.slots),
        }
        folder.mkdir(parents=True, exist_ok=True)
        key = key_of(config)
        _write(folder / f"{key}.o", data)  # written before the record, so a record's object is complete
        _write(folder / f"{key}.json", json.dumps(record, indent=1).encode())
    except Exception as error:  # the DSL's exceptions have no common base class
        warnings.warn(f"sm120_attn: cannot write {config.name} to {folder}: {error}", RuntimeWarning, stacklevel=2)


def _write(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it, so that readers never see a part of a file."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(data)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _from_disk(config: KernelConfig) -> Compiled | None:
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / f"{key_of(config)}.o"
    record = _record(path.with_suffix(".json"))
    if record is None or record["config"] != asdict(config):
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != record["object_sha256"]:
        return None  # incomplete or edited: compile again and overwrite it
    import_dsl()
    from cutlass.runtime import load_module

    _runtime_libraries()
    module = load_module(str(path))
    return loaded(config, abi.from_json(record["slots"]), record["ptxas"], True, module[SYMBOL], module)


def _record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("format") == FORMAT else None


@cache
def _runtime_libraries() -> None:
    """Load the DSL's runtime libraries, which exported code needs. The DSL loads them only for code it runs itself."""
    import ctypes

    from cutlass.runtime import find_runtime_libraries

    for path in find_runtime_libraries(enable_tvm_ffi=False):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
