"""The command, and `python -m tritonhook`."""

import sys

from tritonhook.errors import INTERRUPTED


def main() -> int:
    """Load the command line and run it. Ctrl-C while it loads ends without a traceback too."""
    try:
        from tritonhook.cli import main as run
    except KeyboardInterrupt:
        print("tritonhook: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
