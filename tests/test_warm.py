"""A program that a warm process forks sees and ends as one that Python starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ended import ended

SEEN = (
    "import os, sys\n"
    "print(__name__, globals().get('__file__'), sys.argv, sys.path[0] or os.getcwd(), os.environ['OWN'], os.getcwd())\n"
    "print(sys.stdin.read(), sys.modules['__main__'].__dict__ is globals())"
)


@pytest.mark.parametrize(
    "text",
    [
        SEEN,
        "import atexit, threading; atexit.register(print, 'end'); threading.Timer(0.1, print, ['thread']).start()",
        "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit(print, 'in a thread')",
        "import os, sys\nif os.fork() == 0: sys.exit(3)\nprint(os.wait()[1])",
        "import sys; print('error', file=sys.stderr); sys.exit('a text')",
        "raise SystemExit(300)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise ValueError('wrong')",
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'exit(3)']).returncode)",
    ],
)
@pytest.mark.parametrize("start", ["some program.py", "-m", "-c"])
def test_it_sees_and_ends_as_any_other(text: str, start: str, tmp_path: Path, warm_start: None) -> None:
    (tmp_path / "some program.py").write_text(text)
    (tmp_path / "program.py").write_text(text)
    words = [start, *{"-m": ["program"], "-c": [text]}.get(start, [])]
    command, env = [sys.executable, *words, "a b"], {**os.environ, "OWN": "its own"}
    warm, cold = (ended(command, tmp_path, env, status=None, fresh=fresh) for fresh in (False, True))
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert warm.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]
