"""Entry point of the `tritonhook` command and of `python -m tritonhook`."""

import sys

from tritonhook.errors import INTERRUPTED


def main() -> int:
    """Import and run the command line. Ctrl-C during the import ends without a traceback, too."""
    try:
        from tritonhook.cli import main as run
    except KeyboardInterrupt:
        print("tritonhook: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
