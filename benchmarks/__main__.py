"""Run a benchmark: `python -m benchmarks NAME [OPTIONS]`, in the repository's root. Without NAME: all that there are.

A benchmark is a module of this package with `run(arguments)`, which gives the document of its result, or writes it
itself as it goes. It may also say

    add_arguments(parser)   its options; --out and --quick are here
    RESULT                  the name of its result, where it is not its own; None where it has none
    DIGITS                  see `write_json`
    NEEDS                   what it does not run without: names in `benchmarks.needs`
    OFFLINE                 words with which it needs none of that
    QUICK                   the words of --quick: a run of seconds. {folder}: one that is gone afterwards
    SMALL                   its constants that are others with --quick
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.common import RESULTS, write_json
from benchmarks.needs import missing

HERE = Path(__file__).resolve().parent


def names() -> list[str]:
    """List the names of all benchmarks."""
    return sorted(path.stem for path in HERE.rglob("*.py") if "\ndef run(arguments: " in path.read_text())


def load(name: str) -> ModuleType:
    found = [path for path in HERE.rglob(f"{name}.py") if "\ndef run(arguments: " in path.read_text()]
    if len(found) != 1:
        raise SystemExit(f"there is no benchmark {name!r}; there are: {', '.join(names())}")
    return import_module(".".join(("benchmarks", *found[0].relative_to(HERE).with_suffix("").parts)))


def parsed(name: str, words: Sequence[str], folder: Path = RESULTS) -> argparse.Namespace:
    """The options of a benchmark. folder: of its result."""
    module = load(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a run of seconds that writes no result")
    if (result := getattr(module, "RESULT", name)) is not None:
        parser.add_argument("--out", type=Path, default=folder / f"{result}.json")
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    return parser.parse_args(words)


def why_not(module: ModuleType, words: Sequence[str]) -> str | None:
    """What a benchmark needs for these words and does not find here."""
    offline = getattr(module, "OFFLINE", ())  # words that need nothing, or what they need
    for word in set(words).intersection(offline):
        return missing(offline[word]) if isinstance(offline, dict) else None
    return missing(getattr(module, "NEEDS", ()))


def main(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(__doc__, *names(), sep="\n")
        return 0
    name, *words = words
    module = load(name)
    with tempfile.TemporaryDirectory() as folder:
        is_quick = "--quick" in words
        if is_quick:
            vars(module).update(getattr(module, "SMALL", {}))
            words = [*(word.format(folder=folder) for word in getattr(module, "QUICK", ())), *words]
        arguments = parsed(name, words, Path(folder) if is_quick else RESULTS)
        if why := why_not(module, words):
            raise SystemExit(f"{name} needs {why}")
        found = module.run(arguments)
        if not isinstance(found, dict):
            return found or 0
        write_json(arguments.out, {"format": 1} | found, getattr(module, "DIGITS", 5))
        for figure, value in found.get("summary", {}).items():
            print(f"{figure}: {value}")
        print("nothing is kept" if arguments.quick else f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
