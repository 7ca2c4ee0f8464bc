"""Timing processes that are started in advance: they import torch while another comparison is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Spares:
    """Processes for the comparisons to come.

    kinds: for each process, in the order of use, what it imports in advance: Python code. most: started at a time.
    """

    def __init__(self, kinds: Sequence[str], most: int) -> None:
        self._kinds = list(kinds)
        self._most = most
        self._ready: list[tuple[str, Any]] = []
        self.refill()

    def refill(self) -> None:
        """Start as many processes as were taken."""
        from tritonhook.timing.coordinator import WORKER, Process

        while self._kinds and len(self._ready) < self._most:
            kind = self._kinds.pop(0)
            program = f"{kind}\nfrom tritonhook.timing.worker import main\nmain()"
            self._ready.append((kind, Process((WORKER[0], "-c", program))))

    def take(self, kind: str = "") -> Any:
        """A process of this kind; a fresh one, if none is ready."""
        from tritonhook.timing.coordinator import Process

        number = next((n for n, (have, _) in enumerate(self._ready) if have == kind), None)
        return Process() if number is None else self._ready.pop(number)[1]

    def end(self) -> None:
        for _, process in self._ready:
            process.end()
