"""A ptxas for tests that misbehaves on demand: a shell script in front of the real one."""

from __future__ import annotations

import shlex
from pathlib import Path

from tritonhook.ptxas.tool import Tool


def shell_ptxas(folder: Path, real: Tool, body: str, name: str = "ptxas") -> Tool:
    """Write the script. body: shell code that sees $real (the real ptxas), $in (the module's file), $name (of its
    first entry) and "$@"; if it does not exit, the real ptxas runs."""
    path = folder / name
    path.write_text(
        f"#!/bin/sh\nreal={shlex.quote(str(real.path))}\n"
        '[ "$1" = --version ] && exec "$real" "$@"\n'
        'for word in "$@"; do case "$word" in *.ptx|/proc/*) in="${in:-$word}";; esac; done\n'
        + ("name=$(grep -o 'entry [A-Za-z_0-9]*' \"$in\" | head -1 | cut -d' ' -f2)\n" if "$name" in body else "")
        + f'{body}\nexec "$real" "$@"\n'
    )
    path.chmod(0o755)
    return Tool(path, real.version, "fake")
