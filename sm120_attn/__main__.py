"""Entry point of `python -m sm120_attn check | bench | inspect | selftest`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

# Subcommand -> its help. The module of the same name in verify/ has add_arguments and main.
VERBS = {
    "check": "compare attention with a float64 reference in many cases, on a GPU",
    "bench": "time attention and other implementations, such as torch's, on a GPU",
    "inspect": "compile the kernels, also for GPUs that are not present, and count instructions",
    "selftest": "run all checks and benchmarks, and write one file to send back: for owners of an RTX 50 or GB10",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sm120_attn", description="Flash attention for sm_12x.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    given = sys.argv[1:] if arguments is None else arguments
    for name, summary in VERBS.items():
        verb = verbs.add_parser(name, help=summary, description=summary)
        if name in given[:1]:  # import only the module of the chosen subcommand; others may import torch
            module = import_module(f"{__package__}.verify.{name}")
            module.add_arguments(verb)
            verb.set_defaults(main=module.main)
    parsed = parser.parse_args(given)
    try:
        code: int = parsed.main(parsed)
        return code
    except (ValueError, ImportError, RuntimeError, OSError) as error:
        print(f"sm120_attn {parsed.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"sm120_attn {parsed.verb}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
