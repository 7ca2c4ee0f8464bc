"""The document of one file with GPU code: the kernels of its cubins, with resources, instruction mix and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines
from tritonhook.cubin.opcode_classes import class_counts
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Loop, Sass
from tritonhook.report.documents import FORMAT
from tritonhook.report.documents.code import CodeListing, code_document

_OPCODES = 4  # of a loop, the most frequent


@dataclass(frozen=True, slots=True)
class GpuFile:
    """A file with GPU code. what: "cubin", "PTX", "fat binary" or "shared library".

    ptxas: the version that made the images where they do not say it. code: of each image by kernel; empty if it was not
    read, and `notes` say why.
    """

    path: str
    what: str
    cubins: Sequence[Cubin]
    code: Sequence[Mapping[str, Sass]]
    ptxas: str | None = None
    notes: Sequence[str] = ()


def file_document(file: GpuFile, full: bool) -> dict[str, Any]:
    """A file as JSON values. full: with the code of its kernels."""
    return {
        "format": FORMAT,
        "kind": "file",
        "path": file.path,
        "what": file.what,
        "kernels": [
            _kernel(cubin, kernel, file.ptxas, code.get(kernel), full)
            for cubin, code in zip(file.cubins, file.code, strict=True)
            for kernel in cubin.kernels
        ],
        "notes": list(file.notes),
    }


def _kernel(cubin: Cubin, kernel: str, ptxas: str | None, sass: Sass | None, full: bool) -> dict[str, Any]:
    resources, code = cubin.resources[kernel], cubin.text(kernel)
    document: dict[str, Any] = {
        "kernel": kernel,
        "arch": f"sm_{cubin.arch}",
        "ptxas": cubin.ptxas_version or ptxas,
        "resources": {
            "registers": resources.registers,
            "stack": resources.stack,
            "spill_stores": resources.spill_stores,
            "spill_loads": resources.spill_loads,
            "local_stores": resources.local_stores,
            "local_loads": resources.local_loads,
            "shared": resources.shared,
            "dynamic_shared": None,  # the launch gives it
            "instructions": len(code) // INSTRUCTION_BYTES,
            "code_bytes": len(code),
        },
        "barriers": resources.barriers,
        "threads": resources.threads,
        "needs": list(resources.externs),
        "mix": None if sass is None else class_counts(sass.opcode_counts()),
        "loops": None if sass is None else [_loop(sass, loop) for loop in sass.loops],
    }
    if full and sass is not None:
        document["code"] = code_document(CodeListing(sass, read_lines(cubin, kernel), None))
    return document


def _loop(sass: Sass, loop: Loop) -> dict[str, Any]:
    return {
        "offset": sass.instructions[sass.blocks[loop.header].first].offset,
        "instructions": len(loop.instructions),
        "innermost": loop.innermost,
        "opcodes": dict(sass.opcode_counts(loop.instructions).most_common(_OPCODES)),
    }
