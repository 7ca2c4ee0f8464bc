"""python -m sm120_attn check | bench | inspect | selftest"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

VERBS = {
    "check": "compare with float64 over the whole matrix of cases, on a GPU",
    "bench": "time it against torch and others, on a GPU",
    "inspect": "compile for GPUs that are not at hand, and count instructions",
    "selftest": "check and bench, into one file to send back: for owners of an RTX 50 or GB10",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sm120_attn", description="Flash attention for sm_12x.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    given = sys.argv[1:] if arguments is None else arguments
    for name, what in VERBS.items():
        verb = verbs.add_parser(name, help=what, description=what)
        if name in given[:1]:  # the other verbs' modules, and torch, stay out
            import_module(f"{__package__}.verify.{name}").add_arguments(verb)
    parsed = parser.parse_args(given)
    try:
        return import_module(f"{__package__}.verify.{parsed.verb}").main(parsed)
    except (ValueError, ImportError, RuntimeError, OSError) as error:
        print(f"sm120_attn {parsed.verb}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
