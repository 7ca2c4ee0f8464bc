"""Hash what a compiler made of a kernel at each stage, without what cannot reach the machine code: names of values,
positions in the source, comments. The first stage whose hash differs names who changed the kernel."""

from __future__ import annotations

import hashlib
import re

from tritonhook.capture.model import Capture, Stage
from tritonhook.ptx.kernel_names import without_hashes
from tritonhook.ptx.normal_form import normal_form

ORDER = (Stage.TTIR, Stage.GLIR, Stage.TTGIR, Stage.LLIR, Stage.PTX)
# Who makes each stage of Triton's pipeline from the one before it.
MAKERS = {
    "ttir": "the source, or Triton's front end",
    "glir": "the source, or Gluon's front end",
    "ttgir": "Triton's passes",
    "llir": "Triton's lowering to LLVM",
    "ptx": "LLVM",
}
_HASH = 16  # hex digits
_LOCATION = re.compile(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*"|\((?:[^()"]|"(?:[^"\\]|\\.)*"|\([^()]*\))*\))*\)')
_NAMED_LOCATION = re.compile(r" loc\(#\w+\)")  # nearly all of them
_VALUE = re.compile(r"(%[\w$.-]+)", re.ASCII)
_DEBUG_USE = re.compile(r", !(?:dbg|tbaa|noalias|alias\.scope) ![\w.]+")
_DEBUG_OF_FUNCTION = re.compile(r" !dbg ![\w.]+")


def stage_hashes(capture: Capture) -> dict[str, str]:
    """The hash of each text that the capture has, in the order of the pipeline."""
    hashes = {}
    for stage in ORDER:
        if (text := capture.text(stage)) is not None:
            normal = without_hashes(normalised(stage, text).replace(capture.kernel, "{kernel}"))
            hashes[stage.value] = hashlib.sha256(normal.encode()).hexdigest()[:_HASH]
    return hashes


def normalised(stage: Stage, text: str) -> str:
    """The text of a stage without names of values, positions in the source and comments."""
    if stage is Stage.PTX:
        return normal_form(text)
    return _llvm(text) if stage is Stage.LLIR else _mlir(text)


def _mlir(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(("#loc", "//"))]
    text = _NAMED_LOCATION.sub("", "\n".join(lines))
    return _numbered(_LOCATION.sub("", text) if " loc(" in text else text)


def _llvm(text: str) -> str:
    dropped = ("!", ";", "source_filename", "    #dbg")
    lines = [line for line in text.splitlines() if line and not line.startswith(dropped)]
    return _numbered(_DEBUG_OF_FUNCTION.sub("", _DEBUG_USE.sub("", "\n".join(lines))))


def _numbered(text: str) -> str:
    """The text with its values numbered in the order in which they come."""
    parts = _VALUE.split(text)  # a value at every second place
    numbers = {value: f"%{number}" for number, value in enumerate(dict.fromkeys(parts[1::2]))}
    parts[1::2] = [numbers[value] for value in parts[1::2]]
    return "".join(parts)
