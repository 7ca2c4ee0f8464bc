"""A ptxas for tests: a shell script that makes a "cubin" of its arguments, and then does what FAKE_DO says."""

from __future__ import annotations

import subprocess
from pathlib import Path

ANSWER = "Cuda compilation tools, release 12.8, V12.8.93\n"  # to --version
PTX = """.version 8.7
.target {target}
.address_size 64
.visible .entry {name}(
	.param .u64 {name}_param_0
)
{{
	ret;
}}
"""

# FAKE_ARGS: where to write the arguments, each ended by NUL; FAKE_DO: what to do in the end.
SCRIPT = r"""#!/bin/sh
[ "$1" = --version ] && { echo "Cuda compilation tools, release 12.8, V12.8.93"; exit 0; }
[ -n "$FAKE_ARGS" ] && printf '%s\0' "$@" > "$FAKE_ARGS"
out=elf.o
for word in "$@"; do
  [ "$previous" = -o ] && out=$word
  [ "$word" = - ] && stdin=$(cat)
  previous=$word
done
printf '\177ELF made of %s %s' "$*" "$stdin" > "$out"
eval "$FAKE_DO"
"""


def make_ptxas(folder: Path, script: str = SCRIPT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ptxas"
    path.write_text(script)
    path.chmod(0o755)
    return path


def make_ptx(path: Path, name: str = "add", target: str = "sm_90a", extra: str = "") -> Path:
    path.write_text(PTX.format(name=name, target=target) + extra)
    return path


def works(ptxas: Path) -> bool:
    """Whether a fake ptxas, or a wrapper around one, answers --version."""
    done = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=False)
    return (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
