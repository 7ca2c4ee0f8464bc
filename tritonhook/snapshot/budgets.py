"""Budgets: what kernels may have whatever a lock says, by globs of their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tritonhook._util.demangle import function_name
from tritonhook.snapshot.facts import KernelFacts

_ALL = "*"


@dataclass(frozen=True, slots=True)
class Budgets:
    """max_registers: by glob; the first that fits a kernel's name counts. allow_spills: globs of the kernels that may
    spill; None where spills have no budget. A name fits as it is, or demangled."""

    max_registers: Mapping[str, int] = field(default_factory=dict)
    allow_spills: tuple[str, ...] | None = None

    @classmethod
    def of(cls, max_registers: int | Mapping[str, int] | None, allow_spills: list[str] | None) -> Budgets:
        """The values as TOML has them: one number is for all kernels."""
        registers = {_ALL: max_registers} if isinstance(max_registers, int) else dict(max_registers or {})
        return cls(registers, None if allow_spills is None else tuple(allow_spills))

    def before(self, other: Budgets) -> Budgets:
        """These, and those of the other that these leave open."""
        spills = other.allow_spills if self.allow_spills is None else self.allow_spills
        return Budgets({**self.max_registers, **other.max_registers, **self.max_registers}, spills)

    @property
    def values(self) -> dict[str, Any]:
        """As TOML has them; what is not set is not there."""
        registers = self.max_registers.get(_ALL) if list(self.max_registers) == [_ALL] else dict(self.max_registers)
        values: dict[str, Any] = {"max_registers": registers or None}
        values["allow_spills"] = None if self.allow_spills is None else list(self.allow_spills)
        return {name: value for name, value in values.items() if value is not None}

    def registers_of(self, kernel: KernelFacts) -> int | None:
        """The most registers that a kernel may have; None without a budget."""
        return next((most for glob, most in self.max_registers.items() if _fits(glob, kernel)), None)

    def is_over(self, what: str, kernel: KernelFacts) -> bool | None:
        """Whether a kernel has more than its budget of registers or spills; None where it has none. Spills that are not
        known are more than none, unless the code has no access to local memory."""
        if what == "registers" and (most := self.registers_of(kernel)) is not None:
            registers = kernel.figures.get("registers")
            return registers is None or registers > most
        if what == "spills" and self.allow_spills is not None:
            spills = [kernel.figures.get(name) for name in ("spill_stores", "spill_loads")]
            return spills != [0, 0] and not any(_fits(glob, kernel) for glob in self.allow_spills)
        return None


def _fits(glob: str, kernel: KernelFacts) -> bool:
    name = kernel.identity.kernel
    return any(fnmatchcase(candidate, glob) for candidate in (name, function_name(name)))
