"""nvdisasm says the same of the same code, and takes a third of a second to start: in a run of the tests it reads each
code once, for all processes of pytest-xdist."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

from tritonhook.ptxas.tool import Finished

Run = Callable[..., Finished]


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
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        done = run(command)
        if not done.returncode and not done.timed_out:
            staged = kept.with_name(f"{kept.name}-{os.getpid()}")
            staged.write_bytes(pickle.dumps(done))
            staged.replace(kept)
        return done

    return known
