"""Mutation testing: which small changes of the code no test notices.

    make mutants                          # 4,000 mutants: some hours
    make mutants SAMPLE=500                              # fewer
    python -m benchmarks mutants                         # count again what mutants/ holds
    python -m benchmarks mutants --sample 500 --seed 7   # first try so many that were not tried
    python -m benchmarks mutants --again                 # first try those again that survived, or that no test reached

mutmut makes the mutants and says which tests reach each one; `[tool.mutmut]` in pyproject.toml names the modules and
the tests. Each mutant meets the tests of its own module first, then the fastest others, MOST_TESTS and MOST_SECONDS at
most: with all, a function that most tests reach takes minutes. So a survivor may be one that a slower test finds. This
script counts what mutmut left in mutants/ and keeps every survivor with its change. Only mutants of logic and numbers
count and are tried (`is_logic`): tests need not notice another text, the `strict=` of zip, or another default argument.
Summary: `killed_ratio`, of all that were tried; `killed_of_reached_ratio`, of those that some test reaches. Tests that
start programs of their own in other folders do not see a mutant, so what only they reach counts as untested, and what
needs a GPU. Decorated functions (properties) are not mutated. What needs the CuTe DSL is not among the modules;
sm120_attn has mutants of its own (tests/sm120_attn/mutants.py).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import REPOSITORY, environment

MUTANTS = REPOSITORY / "mutants"
MOST_TESTS, MOST_SECONDS, MOST_SECONDS_ALIVE = 150, 8.0, 120  # of a mutant
SURVIVED, UNTESTED = 0, 33  # exit codes that mutmut records; all others say that a test failed, or ran out of time


COUNTED = "logic and numbers"

NEEDS = ("mutants/",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="try N mutants that were not tried")
    parser.add_argument("--seed", default=str(date.today()), help="of --sample (default: the date)")
    parser.add_argument("--again", action="store_true", help="try again what survived, or what no test reached")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    modules = found_in_mutants()
    wanted = drawn(modules, arguments.sample, arguments.seed)
    if arguments.again:
        every = modules.values()
        wanted += [name for found in every for name, code in found.items() if code in (SURVIVED, UNTESTED)]
    if wanted:
        subprocess.run([sys.executable, "-m", "benchmarks.mutants", *wanted], check=True, cwd=REPOSITORY)
        modules = found_in_mutants()
    rows = {name: counted(found) for name, found in sorted(modules.items()) if found}
    tried = sum(row["tried"] for row in rows.values())
    killed = sum(row["killed"] for row in rows.values())
    if not tried:
        raise SystemExit(f"{MUTANTS} holds no outcome of a mutant; run `make mutants` first")
    for name, row in rows.items():
        if row["tried"]:
            print(f"{name:<44}{row['killed']:>6} of {row['tried']}")
    return {
        "kind": "mutants",
        "environment": environment("mutmut"),
        "summary": {
            "mutants": sum(row["mutants"] for row in rows.values()),
            "tried": tried,
            "killed": killed,
            "killed_ratio": killed / tried,
            "killed_of_reached_ratio": killed / (tried - sum(row["untested"] for row in rows.values())),
        },
        "counted": COUNTED,
        "modules": rows,
        "survivors": survivors(modules),
    }


def found_in_mutants() -> dict[str, dict[str, int | None]]:
    """The mutants of each module that count."""
    found = {}
    for meta in MUTANTS.rglob("*.meta"):
        module, counts = meta.with_suffix(""), logic_mutants(meta.with_suffix("").read_text())
        codes = outcomes(meta)
        found[str(module.relative_to(MUTANTS))] = {
            name: code for name, code in codes.items() if name.rpartition(".")[2] in counts
        }
    return found


def logic_mutants(source: str) -> set[str]:
    """The names of the functions in a module of mutmut that are mutants of logic. source: each mutated function stands
    there as NAME__mutmut_orig, and beside it each mutant as NAME__mutmut_NUMBER."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}
    split = {name: name.rpartition("__mutmut_") for name in nodes}
    return {
        name
        for name, (of, mark, number) in split.items()
        if mark and number.isdigit() and is_logic(nodes[f"{of}__mutmut_orig"], nodes[name])
    }


def is_logic(original: ast.AST, mutant: ast.AST) -> bool:
    """Whether two functions differ in more than text, `strict=` and default arguments. A text that mutmut takes out of
    a call, or replaces with None, is text too."""
    return all(_shape(original, text) != _shape(mutant, text) for text in ("kept", "None", "gone"))


def _shape(node: Any, text: str) -> Any:
    """A tree as tuples, without what does not count. text: what becomes of text among the arguments of a call."""
    if isinstance(node, list):
        return tuple(_shape(each, text) for each in node)
    if not isinstance(node, ast.AST):
        return type(node).__name__, node
    if isinstance(node, ast.Constant) and _is_text(node):
        return "text"
    fields = {name: value for name, value in ast.iter_fields(node) if name not in ("defaults", "kw_defaults", "kind")}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and "__mutmut_" in node.name:
        del fields["name"]
    if isinstance(node, ast.Call):
        arguments = [each for each in (*node.args, *node.keywords) if getattr(each, "arg", None) != "strict"]
        fields = {"func": node.func, "args": arguments}
        if text != "kept":
            none = [] if text == "gone" else [ast.Constant(None)]
            fields["args"] = [one for each in arguments for one in (none if _is_text(each) else [each])]
    return type(node).__name__, *((name, _shape(value, text)) for name, value in fields.items())


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


class Share:
    """A plugin of pytest: of several processes that run the same tests, each runs the modules that no other has taken,
    and remembers which tests fail."""

    def __init__(self, taken: Path) -> None:
        self.taken = taken  # a folder: a file for each module that a process has taken
        self.mine: dict[Path, bool] = {}
        self.failed: set[str] = set()

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        if item.path not in self.mine:
            self.mine[item.path] = self._take(item.path)
        return None if self.mine[item.path] else True  # True: done, nothing to run

    def _take(self, module: Path) -> bool:
        try:
            (self.taken / hashlib.sha256(bytes(module)).hexdigest()).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def try_them(names: Sequence[str]) -> None:
    """Run mutmut, in a process of its own, for these mutants: without its first run of all tests, as the run that finds
    which tests reach what was one; and with a few tests for each. A test that fails in that run meets no mutant."""
    from mutmut import __main__ as mutmut_main
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state
    from mutmut.workers.isolation import ForkRunner

    execute, submit = PytestRunner.execute_pytest, ForkRunner.submit
    collect, wanted = mutmut_main.collect_source_file_mutation_data, frozenset(names)

    def with_limit(runner: Any, params: list[str], plugins: Sequence[Any] = (), **given: Any) -> int:
        if plugins and "--collect-only" not in params:
            return which_tests_reach_what(runner, [one for one in params if one != "-x"], plugins)
        signal.alarm(MOST_SECONDS_ALIVE if "-x" in params else 0)  # mutmut limits CPU time: a deadlock takes none
        try:
            return int(execute(runner, params, plugins=plugins, **given))
        finally:
            signal.alarm(0)

    def which_tests_reach_what(runner: Any, params: list[str], plugins: Sequence[Any]) -> int:
        known, failed = state(), set[str]()
        with TemporaryDirectory() as folder:

            def part(number: int) -> None:
                share = Share(Path(folder))
                execute(runner, params, plugins=[*plugins, share])
                found = dict(known.tests_by_mangled_function_name), dict(known.duration_by_test), share.failed
                (Path(folder) / f"part-{number}").write_bytes(pickle.dumps(found))

            fork, cores = multiprocessing.get_context("fork"), os.cpu_count() or 1
            parts = [fork.Process(target=part, args=(number,)) for number in range(cores)]
            for process in parts:
                process.start()
            for number, process in enumerate(parts):
                process.join()
                reached, seconds, failures = pickle.loads((Path(folder) / f"part-{number}").read_bytes())
                for function, tests in reached.items():
                    known.tests_by_mangled_function_name[function] |= tests
                known.duration_by_test.update(seconds)
                failed |= failures
        for tests in known.tests_by_mangled_function_name.values():
            tests -= failed
        for name in failed:
            known.duration_by_test.pop(name, None)
        print(f"tests that fail without a mutant: {sorted(failed)}", file=sys.stderr)
        return 0

    def own_and_fastest(runner: Any, name: str, tests: Sequence[str], *_: float) -> None:
        module, seconds = name.split(".")[-2], state().duration_by_test
        chosen = sorted(tests, key=lambda test: (module not in test.partition("::")[0], seconds[test]))[:MOST_TESTS]
        while len(chosen) > 1 and sum(seconds[test] for test in chosen) > MOST_SECONDS:
            chosen.pop()
        needed = sum(seconds[test] for test in chosen)
        submit(runner, name, chosen, int(20 + 6 * needed), needed)

    def those_wanted(*, mutant_names: Sequence[str]) -> Any:  # mutmut compares each name with each mutant: minutes
        mutants, files = collect(mutant_names=())
        return [one for one in mutants if one[1] in wanted], files

    PytestRunner.execute_pytest, ForkRunner.submit = with_limit, own_and_fastest
    ForkRunner.run_clean_tests = lambda runner, tests: 0
    mutmut_main.collect_source_file_mutation_data = those_wanted
    mutmut_main.cli(["run", *names])


def drawn(modules: Mapping[str, Mapping[str, int | None]], count: int, seed: str) -> list[str]:
    """Mutants that were not tried. seed: other ones for another."""
    left = [name for _, found in sorted(modules.items()) for name, code in sorted(found.items()) if code is None]
    return random.Random(seed).sample(left, min(count, len(left)))


def outcomes(meta: Path) -> dict[str, int | None]:
    """The exit code of the tests for each mutant of a module; None where it was not tried."""
    return dict(json.loads(meta.read_text())["exit_code_by_key"])


def counted(found: dict[str, int | None]) -> dict[str, Any]:
    tried = [code for code in found.values() if code is not None]
    return {
        "mutants": len(found),
        "tried": len(tried),
        "killed": sum(code not in (SURVIVED, UNTESTED) for code in tried),
        "survived": tried.count(SURVIVED),
        "untested": tried.count(UNTESTED),
    }


def survivors(modules: Mapping[str, Mapping[str, int | None]]) -> dict[str, list[dict[str, str]]]:
    """Each survivor with its change, by module."""
    names = {module: [name for name, code in found.items() if code == SURVIVED] for module, found in modules.items()}
    with ThreadPoolExecutor() as pool:
        return {module: list(pool.map(change, found)) for module, found in sorted(names.items()) if found}


def change(mutant: str) -> dict[str, str]:
    """The lines that a mutant takes out of the code and puts in."""
    shown = subprocess.run(["mutmut", "show", mutant], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    lines = [line for line in shown.stdout.splitlines() if not line.startswith(("---", "+++"))]
    return {
        "function": mutant.rpartition(".")[2].rpartition("__mutmut_")[0].replace("\N{LATIN LETTER LATERAL CLICK}", "."),
        "code": " ".join(line[1:].strip() for line in lines if line.startswith("-")),
        "mutant": " ".join(line[1:].strip() for line in lines if line.startswith("+")),
    }


if __name__ == "__main__":
    try_them(sys.argv[1:])
