"""`python -m tritonhook.verify.program MODULE:FUNCTION`: call a function; if it returns a callable, call that too.

The verbs ab, tune and verify start it as a child process, to record or execute its launches.
"""

from __future__ import annotations

import sys

from tritonhook._util.imports import call_function
from tritonhook.errors import TritonHookError


def main() -> None:
    try:
        made = call_function(sys.argv[1])
        if callable(made):
            made()
    except TritonHookError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
