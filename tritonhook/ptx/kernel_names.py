"""The names of kernels without what compilers change in them from build to build, so that a kernel keeps its name.

nvcc puts hashes, of the file's path among other things, into the names of functions that only one file sees:
_ZN39_GLOBAL__N__8253817b_7_anon_cu_73fc6ea73addEPf in an anonymous namespace, and
__nv_static_28__8253817b_7_anon_cu_73fc6ea7__Z3addPf. torch.compile numbers the kernels of a graph,
the CuTe DSL those of a compiled function: triton_poi_fused_add_0, kernel_cutlass_add_tensorptrf32gmemo1281_0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HASH = re.compile(r"_[0-9a-f]{8}", re.ASCII)
# Up to the file's name. The standard name of an anonymous namespace is 12_GLOBAL__N_1.
_HASHED = re.compile(
    r"(?:(?P<anonymous>(?<!\d)\d+_GLOBAL__N_)|__nv_static_\d+_)_[0-9a-f]{8}_(?P<length>\d{1,4})_", re.ASCII
)
_STANDARD = "12_GLOBAL__N_1"
_NUMBERED = re.compile(r"(?:triton_(?=\w*_fused)|kernel_cutlass_)\w+", re.ASCII)  # and then _ and a number


def lasting_name(name: str) -> str:
    """The name that a kernel keeps from build to build."""
    stem, _, number = name.rpartition("_")
    is_numbered = number.isascii() and number.isdigit() and _NUMBERED.fullmatch(stem)
    return stem if is_numbered else without_hashes(name)


def source_file(name: str) -> str | None:
    """The file in the name of a function that only this file sees, such as "anon_cu"; None for other names."""
    return next((file for _, _, _, file in _hashed(name)), None)


def without_hashes(text: str) -> str:
    """A name, or PTX, without nvcc's hashes."""
    parts, at = [], 0
    for start, end, instead, _ in _hashed(text):
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])


def _hashed(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Find what nvcc adds: where it begins and ends, the same without hashes, and the file in it."""
    if "_GLOBAL__N_" not in text and "__nv_static_" not in text:  # long texts of other compilers
        return
    for match in _HASHED.finditer(text):
        file_end = match.end() + int(match["length"])
        if second := _HASH.match(text, file_end):
            is_static = match["anonymous"] is None
            yield match.start(), second.end() + is_static, "" if is_static else _STANDARD, text[match.end() : file_end]
