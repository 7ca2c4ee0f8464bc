"""Programs that one process forks, as the import of torch takes longer than all else that they do."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any


def said_by(programs: Mapping[str, str], **names: Any) -> dict[str, str]:
    """Run the programs one after the other; return what each printed, its traceback too. names: what they see."""
    said = {}
    for name, text in programs.items():
        reads, writes = os.pipe()
        if (process := os.fork()) == 0:
            os.dup2(writes, 1)
            os.dup2(writes, 2)
            try:
                exec(text, {"__name__": "__main__", **names})
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as file:
            said[name] = file.read()
        os.waitpid(process, 0)
    return said
