"""nvdisasm says the same of the same code, and takes more than half a second to start: tests let it read each code
once, for all processes of pytest-xdist, and for later runs too."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tritonhook.ptxas.tool import Finished

Run = Callable[..., Finished]
KEPT_S = 30 * 24 * 3600.0


def folder_in(cache: Path) -> Path:
    """Make the folder of what nvdisasm said, without what is older than a month."""
    folder = cache / "tritonhook-tests" / "disassembled"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process removes it, too
            if path.stat().st_mtime < time.time() - KEPT_S:
                path.unlink()
    return folder


def remembering(run: Run, folder: Path) -> Run:
    """`run`; what nvdisasm said is kept. Its commands end with the path of a file, and it says nothing of the path.
    ptxas runs with a limit of time, and is not remembered. folder: where is kept what was said."""

    def known(command: Sequence[str], *limit: float) -> Finished:
        if limit:
            return run(command, *limit)
        *words, path = command
        content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        program = str(Path(words[0]).stat().st_mtime_ns) if Path(words[0]).is_file() else ""
        kept = folder / hashlib.sha256("\0".join((program, *words, content)).encode()).hexdigest()
        with suppress(FileNotFoundError):
            return pickle.loads(kept.read_bytes())
        done = run(command)
        if not done.returncode and not done.timed_out:
            staged = kept.with_name(f"{kept.name}-{os.getpid()}")
            staged.write_bytes(pickle.dumps(done))
            staged.replace(kept)
        return done

    return known
