"""Capture cuda.tile kernels under `tritonhook run`: its compiler tileiras gets a linked toolkit in which ptxas is the
wrapper."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, linked_toolkit
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.store.writer import CaptureWriter

_TILE_WHEELS = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")


def begin_tile() -> None:
    """Make cuda.tile's tileiras use the wrapper. Called in a process of `tritonhook run` that has imported cuda.tile.

    cuda.tile calls tileiras by its full path and passes CUDA_ROOT to it, where tileiras looks for ptxas first. So
    CUDA_ROOT is set to a linked copy of the toolkit that tileiras would have used.
    """
    home = WrapperHome.from_environment(os.environ)
    if home is None:
        return
    folder = _tile_toolkit()
    if folder is not None and home.folder not in folder.parents:
        os.environ["CUDA_ROOT"] = str(linked_toolkit(home, folder, folder / "ptxas", True))
    cached = _tile_cache()
    if cached is not None:
        CaptureWriter(RunConfig.from_environment(os.environ).out).close([cached])


def _tile_toolkit() -> Path | None:
    """Find the bin folder of the toolkit whose ptxas tileiras uses. None if tileiras finds that toolkit by PATH, where
    the linked copy already precedes it."""
    named = [Path(os.environ[name], "bin") for name in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if os.environ.get("CUDA_ROOT"):
        folder: Path | None = named[0]
    elif (folder := _tile_wheel_folder()) is None:  # with its wheels, cuda.tile ignores CUDA_HOME and CUDA_PATH
        usual = [] if shutil.which("tileiras") else [Path("/usr/local/cuda/bin")]
        folder = next(iter([*named, *usual]), None)
    return folder if folder is not None and os.access(folder / "ptxas", os.X_OK) else None


def _tile_wheel_folder() -> Path | None:
    """Find the bin folder of the installed wheels, if cuda.tile uses their tileiras. Return None if the wheels are
    missing, or if their versions differ: then cuda.tile does not use them."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        releases = {tuple(version(wheel).split(".")[:2]) for wheel in _TILE_WHEELS}
        spec = find_spec("nvidia.cu13")
    except (PackageNotFoundError, ModuleNotFoundError):
        return None
    if len(releases) != 1 or spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)), "bin")
    return folder if (folder / "tileiras").exists() and (folder / "ptxas").exists() else None


def _tile_cache() -> str | None:
    """Return a note on cuda.tile's own cache of cubins; None if it is off or empty."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = os.environ.get("CUDA_TILE_CACHE_DIR", f"{base}/cutile-python")
    if folder.strip().lower() in ("", "0", "off", "none") or not any(Path(folder).glob("*")):
        return None
    return (
        f"cuda.tile: kernels from its cache ({folder}) are not captured, because ptxas is not called; "
        "CUDA_TILE_CACHE_DIR=off compiles all kernels"
    )
