"""Runs the steps of a workflow's job, or of a composite action, from its YAML, as GitHub's runner would.

Shells, files and variables are the same. Of `uses:` it knows checkout (the folder is a clone already), setup-python (an
environment of this Python), cache (empty), and artifacts; other actions are not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"]}


def read_yaml(path: Path) -> dict[str, Any]:
    """The document. YAML 1.1 takes the key `on` for true."""
    document = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in document.items()}


def jobs(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_yaml(path)["jobs"]
    return found


def first_of_matrix(job: Mapping[str, Any]) -> dict[str, Any]:
    """The first combination of a job's matrix."""
    return {name: values[0] for name, values in job.get("strategy", {}).get("matrix", {}).items()}


@dataclass
class Runner:
    """workspace: where steps run. home: a folder for what the runner keeps. contexts: what expressions name, such as
    {"inputs": {...}}. environment: of every step. ran: the commands of the steps that ran, with their status."""

    workspace: Path
    home: Path
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    ran: list[tuple[str, int]] = field(default_factory=list)
    output: str = ""

    def __post_init__(self) -> None:
        for name in ("temp", "artifacts"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        self.contexts["runner"] = {"temp": str(self.home / "temp")}
        self.environment["RUNNER_TEMP"] = str(self.home / "temp")
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT"):
            self.environment.setdefault(name, str(self.home / name))
            Path(self.environment[name]).touch()

    def run(self, steps: list[dict[str, Any]], skip: tuple[str, ...] = ()) -> Runner:
        """Run steps, but not those of these names."""
        for step in steps:
            if step.get("name") in skip or not self._wanted(step.get("if")):
                continue
            if "run" in step:
                self._run(step)
            else:
                self._use(step["uses"].partition("@")[0], {k: self.filled(v) for k, v in step.get("with", {}).items()})
        return self

    def filled(self, text: Any) -> str:
        """The text with its expressions replaced."""
        return _EXPRESSION.sub(lambda found: str(self._value(found[1])), str(text))

    def _value(self, expression: str) -> Any:
        """A name, or names and texts joined by == != && || ! and status functions."""
        python = re.sub(r"&&", " and ", expression).replace("||", " or ")
        python = re.sub(r"!(?!=)", " not ", python)
        for function, value in {"success()": not self.failed, "failure()": self.failed, "always()": True}.items():
            python = python.replace(function, str(value))
        python = re.sub(r"\b([a-z]+)\.([\w-]+)", lambda found: repr(self.contexts[found[1]].get(found[2], "")), python)
        return eval(python, {"__builtins__": {}})  # texts of our own YAML

    def _wanted(self, condition: Any) -> bool:
        if condition is None:
            return not self.failed
        is_status = re.search(r"(success|failure|always)\(\)", str(condition))
        return bool(self._value(self._bare(condition))) and (is_status is not None or not self.failed)

    def _bare(self, condition: Any) -> str:
        found = _EXPRESSION.fullmatch(str(condition))
        return found[1] if found else str(condition)

    def _run(self, step: dict[str, Any]) -> None:
        own = {name: self.filled(value) for name, value in step.get("env", {}).items()}
        script = self.home / "step.sh"
        script.write_text(self.filled(step["run"]))
        done = subprocess.run(
            [*_SHELLS[step.get("shell")], str(script)],
            cwd=self.workspace,
            env=self._environment() | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output += done.stdout
        self.ran.append((step["run"].strip(), done.returncode))
        self.failed = self.failed or bool(done.returncode)

    def _environment(self) -> dict[str, str]:
        """As a runner has it: none of the settings of this test run."""
        foreign = ("TRITON", "PYTEST", "PYTHON", "TESTS_RAN", "VIRTUAL_ENV", "MAKE", "MFLAGS", "VENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        first = Path(self.environment["GITHUB_PATH"]).read_text().split()
        path = os.pathsep.join((*reversed(first), self.environment.get("PATH") or kept["PATH"]))
        return {**kept, "CI": "true", "GITHUB_ACTIONS": "true", **self.environment, "PATH": path}

    def _use(self, action: str, given: Mapping[str, str]) -> None:
        if action == "actions/setup-python":
            python = self.home / "python"
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
            with Path(self.environment["GITHUB_PATH"]).open("a") as file:
                file.write(f"{python}/bin\n")
        elif action == "actions/upload-artifact":
            source = self.workspace / given["path"]
            if source.exists() or given.get("if-no-files-found") != "ignore":
                shutil.copytree(source, self.home / "artifacts" / given["name"], dirs_exist_ok=True)
        elif action == "actions/download-artifact":
            source = self.home / "artifacts" / given.get("name", "")
            shutil.copytree(source, self.workspace / given["path"], dirs_exist_ok=True)
        elif action not in ("actions/checkout", "actions/cache"):
            raise AssertionError(f"{action}: not known to this runner")


def used_actions(document: Any) -> Iterator[str]:
    """Each `uses` of a workflow or action."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == "uses":
                yield value
            else:
                yield from used_actions(value)
    elif isinstance(document, list):
        for value in document:
            yield from used_actions(value)
