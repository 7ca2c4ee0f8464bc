"""Pins: which configuration an autotuned function gets, without measuring. Values only; capture/triton/pinning.py gives
them to Triton's Autotuner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """A configuration for one key of an autotuned function.

    function: its name. arch: such as "sm_90a". key: as a capture folder keeps it: "name=value" of the arguments that
    decide, then dtypes. config: as Triton writes it. ptx: the hash of the PTX whose lever the configuration goes with;
    None for one that is pinned by itself. gpu, date: where and when it won. source: a hash of the function's; None: the
    function may have changed since.
    """

    function: str
    arch: str
    key: tuple[str, ...]
    config: str
    ptx: str | None = None
    gpu: str = ""
    date: str = ""
    source: str | None = None

    @property
    def identity(self) -> tuple[str, str, tuple[str, ...], str]:
        """What makes two pins the same function's for the same key and GPU; pins are sorted by it."""
        return self.function, self.arch, self.key, self.gpu
