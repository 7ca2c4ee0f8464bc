"""Which options of ptxas a file from a stranger may carry: those that decide the code, and none that names a file.

A list of what is allowed: ptxas takes input (`--input-as-string`), output (`-o`) and further options (`--options-file`)
as options, and has some that its help does not name. From `ptxas --help` of 12.4 to 13.5; `-uumn` and
`--enable-extended-smem` are what tileiras gives it, `--regAllocOptLevel` what Triton 3.7 and newer do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tritonhook._util.cache import cache_folder

_SWITCH_NAMES = """
-v --verbose -v2 --verbose2 -c --compile-only -g --device-debug -w --disable-warnings -lineinfo --generate-line-info
-suppress-debug-info -annotate --compiler-annotations -astoolspatch --compile-as-tools-patch -ewp
--extensible-whole-program -no-bb-merge --dont-merge-basicblocks -ret-end --return-at-end -sp-bounds-check
-preserve-relocs -disable-optimizer-consts --disable-optimizer-constants -opt-fp-atomics --optimize-float-atomics
-make-errors-visible-at-exit -override-directive-values -legacy-bar-warp-wide-behavior -Werror --warning-as-error
-warn-spills --warn-on-spills -warn-lmem-usage --warn-on-local-memory-usage -warn-double-usage
--warn-on-double-precision-use -g-tmem-access-check --g-tensor-memory-access-check -gno-tmem-access-check
--gno-tensor-memory-access-check -gno-fabric-access-check -suppress-async-bulk-multicast-advisory-warning
-suppress-double-demote-warning -suppress-position-independent-code-warning -suppress-sparse-mma-advisory-info
-suppress-stack-size-warning -uumn
"""
_VALUED_NAMES = """
-O --opt-level -Ofc --Ofast-compile -arch --gpu-name -m --machine -maxrregcount -maxntid -minnctapersm
-func-maxrregcount --device-function-maxrregcount -regUsageLevel --register-usage-level -fmad
-allow-expensive-optimizations -device-stack-protector -pic --position-independent-code -split-compile -sanitize
-enable-func-clone-sc -dlcm --def-load-cache -dscm --def-store-cache -flcm --force-load-cache -fscm
--force-store-cache -e --entry --enable-extended-smem -regAllocOptLevel --regAllocOptLevel
"""
_SWITCHES, _VALUED = frozenset(_SWITCH_NAMES.split()), frozenset(_VALUED_NAMES.split())
_CONTROLS = "--apply-controls"  # a file, which tritonhook keeps under the hash of its content
_JOINED = re.compile(r"-(?:O\d|m\d\d)")
_VALUE = re.compile(r"[\w$.,]{1,4096}", re.ASCII)


def refused_option(options: Iterable[str]) -> str | None:
    """The first option that is not on the list, or whose value is no word or number; None if all are."""
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if (not equals and _is(name, _SWITCHES)) or _JOINED.fullmatch(word):
            continue
        value = value if equals else next(words, "")
        if not (_is(name, _VALUED) and _VALUE.fullmatch(value)) and not _is_kept_controls(name, value):
            return word
    return None


def _is(name: str, among: frozenset[str]) -> bool:
    """ptxas takes one dash for two."""
    return name in among or f"-{name}" in among or (name.startswith("--") and name[1:] in among)


def _is_kept_controls(name: str, value: str) -> bool:
    folder, _, file = value.rpartition("/")
    kept = folder == str(cache_folder() / "controls") and re.fullmatch(r"[0-9a-f]{64}", file) is not None
    return name in (_CONTROLS, _CONTROLS[1:]) and kept
