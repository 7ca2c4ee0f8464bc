"""Kernels as a compiler leaves them, and what a capture folder holds of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repository import GOLDEN

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter

MODULE = (GOLDEN / "sm_90a.module.cubin").read_bytes()
KERNELS = ("foo", "foo_bar", "printer")  # of this module


def made(cache: Path, kernel: str = "add", cubin: bytes = b"\x7fELF code", hash: str = "0" * 64) -> Any:
    """A kernel as a compiler leaves it: its Capture, and its files by stage."""
    folder = cache / str(time.monotonic_ns())
    folder.mkdir()
    contents = {Stage.TTIR: b"ttir", Stage.PTX: b".version 8.7\n.target sm_90a\n", Stage.CUBIN: cubin}
    files = {stage: f"{folder}/{number}.{stage.value}" for number, stage in enumerate(contents)}
    for stage, path in files.items():
        Path(path).write_bytes(contents[stage])
    assembler = Assembler("/bin/ptxas", "12.8.93", ("-v", "--gpu-name=sm_90a"))
    capture = Capture(kernel, hash, "sm_90a", dict.fromkeys(files, ""), assembler, {"num_warps": 4}, {"a": [1]}, False)
    return capture, files


def kept(out: Path) -> list[str]:
    """All names below OUT/kernels, the hidden ones too."""
    return sorted(path.name for path in (out / "kernels").iterdir())


def keep_module(
    out: Path, cache: Path, linked: bool = True, image: bytes = MODULE, kernels: Sequence[str] = KERNELS
) -> CaptureFolder:
    """A record for each kernel of one module, as the ptxas wrapper keeps them."""
    writer = CaptureWriter(out)
    _, files = made(cache, cubin=image)
    for number, kernel in enumerate(kernels):
        capture, _ = made(cache, kernel)
        record = writer.add_files(capture, files, linked=linked and number > 0)
        stored = {stage: str(next((out / "kernels" / record).glob(f"*.{stage.value}"))) for stage in files}
        files = stored if linked else files
    writer.close()
    return CaptureFolder.open(out)
