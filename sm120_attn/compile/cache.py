"""Compiled kernels: from this process, from the cache on disk, or compiled now. Launching them is launch.py's.

A kernel is compiled once per Config; lengths, heads and strides are arguments and never compile again. On disk a kernel
is two files in SM120_ATTN_CACHE (else the user's cache folder): <key>.o, the object file that the DSL exports, and
<key>.json, which says what it is: config, argument slots, ptxas version, hash of the object. The key covers the
sources of this package, the DSL's libraries (which have ptxas inside), the config, and the processor that the host
code is compiled for. `SM120_ATTN_CACHE=off` keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..config import Config
from . import abi
from .build import AnyConfig, build, why_not

FORMAT = 2  # of the files on disk
SYMBOL = "sm120_attn"
ERROR_LENGTH = 500  # of the DSL's words, in an error of ours
DSL_PACKAGES = tuple(
    f"nvidia-cutlass-dsl{part}" for part in ("", "-libs-base", "-libs-core", "-libs-cu12", "-libs-cu13")
)
# ptxas writes its version into the note section of a cubin, in this sentence of NVIDIA's tools.
_PTXAS = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel ready to be called: `entry(address)`, with the address of an abi.Buffer(layout).

    ptxas: version that assembled it, None if the cubin does not say. cached: taken from disk.
    alive: what must live as long as the code does.
    """

    config: AnyConfig
    layout: abi.Layout
    ptxas: str | None
    cached: bool
    entry: Callable[[Any], Any]
    alive: Any


_compiled: dict[AnyConfig, Compiled] = {}
_lock = threading.RLock()


def get(config: AnyConfig) -> Compiled:
    """The kernel of this config. Raises ValueError if it cannot be built, ImportError without the DSL."""
    found = _compiled.get(config)
    if found is None:
        with _lock:
            found = _compiled.get(config)
            if found is None:
                found = _compiled[config] = _from_disk(config) or _compile(config)
    return found


def is_ready(config: AnyConfig) -> bool:
    """Whether this process has it, so that nothing is compiled or loaded at the next call."""
    return config in _compiled


def is_cached(config: AnyConfig) -> bool:
    """Whether the cache on disk seems to have it."""
    folder = cache_folder()
    return folder is not None and (folder / f"{key_of(config)}.json").exists()


def prebuild(config: AnyConfig) -> None:
    """Into the cache on disk, without a GPU."""
    if not is_cached(config):
        function, names, arguments, cubin = compile_function(config)
        _keep(config, function, abi.slots_of(names, arguments), ptxas_version(cubin))


@contextmanager
def instead(config: Config, policy: Any) -> Iterator[None]:
    """What asks for this kernel gets one with another MMA policy, compiled now and kept nowhere. For tests."""
    right = _compiled.get(config)
    function, names, arguments, cubin = compile_function(config, policy)
    _compiled[config] = _loaded(config, abi.slots_of(names, arguments), ptxas_version(cubin), False, function)
    try:
        yield
    finally:
        del _compiled[config]
        if right is not None:
            _compiled[config] = right


def cached_kernels() -> list[dict[str, Any]]:
    """What the cache on disk says of its kernels."""
    folder = cache_folder()
    records = [] if folder is None else [_record(path) for path in sorted(folder.glob("*.json"))]
    return [record for record in records if record]


def cache_folder() -> Path | None:
    """Where kernels are kept; None if they are not."""
    named = os.environ.get("SM120_ATTN_CACHE")
    if named == "off":
        return None
    if named:
        return Path(named)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sm120_attn"


@lru_cache(maxsize=4096)
def key_of(config: AnyConfig) -> str:
    facts = {"config": asdict(config), **_environment()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _environment() -> dict[str, Any]:
    """What a compiled kernel depends on beside its config."""
    return {
        "format": FORMAT,
        "sources": source_hash(),
        "dsl": {name: _version(name) for name in DSL_PACKAGES},
        "libraries": os.environ.get("CUTE_DSL_LIBS"),  # picks another flavour of the DSL's libraries
        "host": [platform.system(), platform.machine(), _processor()],
    }


@cache
def source_hash() -> str:
    """Of all Python files of the package: any change of them makes new kernels."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def dsl_versions() -> dict[str, str]:
    """The installed packages of the CuTe DSL."""
    return {name: found for name, found in _environment()["dsl"].items() if found}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str | None:
    """The instructions the processor has; the DSL compiles host code for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


# --- compiling ---------------------------------------------------------------------------------------------------


def _compile(config: AnyConfig) -> Compiled:
    function, names, arguments, cubin = compile_function(config)
    slots = abi.slots_of(names, arguments)
    version_found = ptxas_version(cubin)
    _warn_of_old_ptxas(version_found)
    _keep(config, function, slots, version_found)
    return _loaded(config, slots, version_found, False, function)


def compile_function(config: AnyConfig, policy: Any = None) -> tuple[Any, list[str], tuple[Any, ...], bytes]:
    """The DSL's compiled function, its arguments' names, the fake arguments it was compiled with, and the cubin.

    policy: see `build`.
    """
    wrong = why_not(config)  # before the DSL is asked for, which may be missing
    if wrong:
        raise ValueError(wrong)
    import_dsl()
    import cutlass.cute as cute

    host, arguments = build(config, policy)
    with tempfile.TemporaryDirectory(prefix="sm120_attn-") as folder:
        options = f"--gpu-arch {config.arch} --keep-ptx --keep-cubin --dump-dir {folder}"
        try:
            function = cute.compile(host, *arguments, options=options)
        except Exception as error:  # the DSL's own errors have no common base, and many lines
            said = " ".join(f"{type(error).__name__}: {error}".split())[:ERROR_LENGTH]
            raise RuntimeError(f"the CuTe DSL cannot compile {config.name} for {config.arch}: {said}") from error
    names = list(function.execution_args.signature.parameters)
    return function, names, arguments, bytes(function.__cubin__ or b"")


def import_dsl() -> None:
    """Raises ImportError that says what to install."""
    try:
        import cutlass.cute  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "sm120_attn compiles its kernels with NVIDIA's CuTe DSL, which cannot be imported "
            f"({error}); install it with: pip install 'nvidia-cutlass-dsl[cu13]==4.8.1'"
        ) from error


def _warn_of_old_ptxas(found: str | None) -> None:
    """ptxas 12.9, in the DSL's default flavour, makes loops of the same PTX a fifth longer, with spills."""
    import warnings

    if found is not None and int(found.partition(".")[0]) < 13:
        warnings.warn(
            f"sm120_attn: kernels are assembled with ptxas {found}, which makes slower code; for 13.4: pip uninstall "
            "nvidia-cutlass-dsl-libs-cu12, then pip install --force-reinstall --no-deps nvidia-cutlass-dsl-libs-cu13",
            RuntimeWarning,
            stacklevel=2,
        )


def ptxas_version(cubin: bytes) -> str | None:
    """Which ptxas assembled it, as "13.4.59"; None if it does not say."""
    found = _PTXAS.search(cubin)
    return found.group(1).decode() if found else None


def _loaded(
    config: AnyConfig, slots: tuple[abi.Slot, ...], ptxas: str | None, cached: bool, function: Any, *alive: Any
) -> Compiled:
    executor = function.to(None)  # loads the cubin on all devices
    return Compiled(config, abi.Layout(slots), ptxas, cached, executor.capi_func, (executor, function, *alive))


# --- the cache on disk -------------------------------------------------------------------------------------------


def _keep(config: AnyConfig, function: Any, slots: tuple[abi.Slot, ...], ptxas: str | None) -> None:
    """Write it to the cache. A cache that cannot be written costs time later, so it only warns."""
    folder = cache_folder()
    if folder is None:
        return
    import warnings

    _runtime_libraries()
    try:
        data = function.dump_to_object(SYMBOL)
        record = {
            "format": FORMAT,
            "name": config.name,
            "config": asdict(config),
            "ptxas": ptxas,
            "dsl": dsl_versions(),
            "object_sha256": hashlib.sha256(data).hexdigest(),
            "slots": abi.to_json(slots),
        }
        folder.mkdir(parents=True, exist_ok=True)
        key = key_of(config)
        _write(folder / f"{key}.o", data)  # first: a record stands only beside a whole object
        _write(folder / f"{key}.json", json.dumps(record, indent=1).encode())
    except Exception as error:  # the DSL's own errors have no common base
        warnings.warn(f"sm120_attn: this kernel is not kept in {folder}: {error}", RuntimeWarning, stacklevel=2)


def _write(path: Path, data: bytes) -> None:
    """Beside its place, then renamed into it: readers see all of it or nothing."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(data)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _from_disk(config: AnyConfig) -> Compiled | None:
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
        return None  # torn or edited: compiled again, and written over
    import_dsl()
    from cutlass.runtime import load_module

    _runtime_libraries()
    module = load_module(str(path))
    return _loaded(config, abi.from_json(record["slots"]), record["ptxas"], True, module[SYMBOL], module)


def _record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("format") == FORMAT else None


@cache
def _runtime_libraries() -> None:
    """The DSL's runtime, visible to the code it loads and exports; it does not do that itself for exports."""
    import ctypes

    from cutlass.runtime import find_runtime_libraries

    for path in find_runtime_libraries(enable_tvm_ffi=False):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
