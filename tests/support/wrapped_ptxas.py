"""A fake ptxas behind the real wrapper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fake_ptxas import make_ptxas
from hangs import HANG_S

from tritonhook.capture.model import Capture
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment
from tritonhook.capture.store import CaptureFolder


class WrappedPtxas:
    """A fake ptxas, its wrapper, and a folder to call it in; the paths have blanks."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder / "a build"
        self.folder.mkdir()
        self.real = make_ptxas(folder / "tool kit")
        home = WrapperHome(folder / "wrappers here" / "toolkits", python)
        environment = path_environment({"PATH": str(self.real.parent)}, home)
        self.wrapper = Path(environment["PATH"].split(":")[0]) / "ptxas"
        self.log = folder / "wrappers here" / "ptxas-wrapper.log"
        self.out = folder / "captures"

    def settings(self, **settings: object) -> dict[str, str]:
        return {"TRITONHOOK_RUN": json.dumps({"out": str(self.out), "only": None, "rename": None} | settings)}

    def call(self, *words: str, through: Path | None = None, **options: object) -> subprocess.CompletedProcess:
        environment = {"PATH": "/usr/bin:/bin"} | options.pop("env", self.settings())  # type: ignore[operator]
        line = [str(through or self.wrapper), *words]
        usual = {"cwd": self.folder, "env": environment, "capture_output": True, "check": False, "timeout": HANG_S}
        return subprocess.run(line, **usual | options)  # type: ignore[call-overload]

    @property
    def captures(self) -> dict[str, Capture]:
        folder = CaptureFolder.open(self.out)
        return {capture.kernel: capture for capture in map(folder.capture, folder.records)}

    @property
    def trouble(self) -> list[str]:
        return [json.loads(line)["what"] for line in self.log.read_text().splitlines()] if self.log.exists() else []
