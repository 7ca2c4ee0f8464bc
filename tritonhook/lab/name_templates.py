"""Names to try on a kernel, and a control name for each, of the same length and of meaningless letters.

A template is a name in which `*` stands for the kernel's own name. The template PRAGMA stands for the kernel with
`.pragma "mma_throughput"`.
"""

from __future__ import annotations

import re

from tritonhook.errors import UsageError
from tritonhook.ptx.tokens import IDENTIFIER
from tritonhook.rename import strip_word

PRAGMA = ".pragma"
DEFAULT_NAMES = (
    # the trigger, at different positions
    *("cutlass_*", "my_cutlass_*", "*_cutlass", "cutlass", "xcutlassx_*", "cutlass3x_*"),
    *("_ZN7cutlass6kernelEv", "_Z14cutlass_kernelPf"),
    # the trigger in another case, parts of it, and the trigger with changed letters
    *("Cutlass_*", "CUTLASS_*", "cutlasS_*"),
    *("cutlas_*", "utlass_*", "cutl_*", "lass_*", "cut_lass_*", "cut_*_lass"),
    *("cutless_*", "kutlass_*", "cutlazs_*", "ssaltuc_*"),
    # other strings that might have an effect
    *("cute_*", "cublas_*", "cublasLt_*", "cudnn_*", "cub_*", "thrust_*", "triton_*", "flash_*", "fmha_*"),
    *("nvjet_*", "xmma_*", "gemm_*", "wgmma_*", "ampere_*", "sm90_xmma_gemm_*", "tensorrt_*", "nccl_*", "kernel_*"),
)

_LETTERS = ("vwxyz", "zvywx")  # letters of the two control names; no string above consists of these letters only
_MANGLED_PART = re.compile(r"(\d+)")


def fill_in(template: str, own: str) -> str:
    """Replace the `*` of a template by the kernel's name without the trigger. Raises UsageError if the result is not a
    PTX name. For the template PRAGMA, the result is a name of meaningless letters."""
    if template == PRAGMA:
        return neutral(strip_word(own), 1)
    name = template.replace("*", strip_word(own) if "*" in template else "")
    if not IDENTIFIER.fullmatch(name) or name.startswith("%"):
        raise UsageError(
            f"{template!r} makes no valid PTX name from {own!r} ({name!r}); use letters, digits, _ and $, "
            "and * for the kernel's name"
        )
    return name


def neutral(name: str, number: int = 0) -> str:
    """Make a control name of meaningless letters, as long as `name`. Names of the same length have the same control
    name.

    For a mangled C++ name, the control is a mangled name. number: 0 or 1, for two different control names.
    """
    spans = _mangled_identifiers(name) if name.startswith("_Z") else []
    letters = _LETTERS[number]
    control = "".join(
        letters[index % len(letters)] if not spans or any(a <= index < b for a, b in spans) else character
        for index, character in enumerate(name)
    )
    return control if control != name else control[:-1] + "q"


def _mangled_identifiers(name: str) -> list[tuple[int, int]]:
    """Find start and end of each source name in a mangled name (Itanium ABI). The digits before a source name are its
    length."""
    spans = []
    position = 2
    while match := _MANGLED_PART.search(name, position):
        start, end = match.end(), match.end() + int(match[1])
        if end > len(name):
            break
        spans.append((start, end))
        position = end
    return spans
