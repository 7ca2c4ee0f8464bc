"""Options that rename and rewrite kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritonhook.capture.settings import REWRITES
from tritonhook.cli._parser import Group, flag, option
from tritonhook.errors import PtxError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.rename import TRIGGER, Rename, make_rename


@dataclass(frozen=True, kw_only=True)
class RenameOptions(Group):
    """Options that rename kernels: for rename, run, diff and ab."""

    prefix: str | None = option(help='prefix for kernel names, e.g. "cutlass_"')
    strip: bool = flag(help=f'remove "{TRIGGER}" from names')
    to: tuple[str, ...] = option(
        action="append", default=[], metavar="OLD=NEW", help="rename the kernel OLD to NEW; may be repeated"
    )

    def wanted(self) -> Rename | None:
        """Build the rename from the options; None without such options. Raises UsageError."""
        pairs = [item.partition("=") for item in self.to]
        if wrong := [old for old, equals, new in pairs if not (old and equals and new)]:
            raise UsageError(f"--to {wrong[0]}: write OLD=NEW")
        if self.prefix == "":
            raise UsageError("--prefix '': give at least one letter")
        if pairs and (self.prefix or self.strip):
            raise UsageError("--to names kernels exactly; do not combine it with --prefix or --strip")
        if pairs:
            return make_rename({old: new for old, _, new in pairs})
        return make_rename(self.prefix, self.strip)


def rewrite_option(what: str) -> Any:
    """Declare --rewrite NAME, which may be repeated. what: its effect, for the help."""
    return option(
        action="append",
        default=[],
        choices=REWRITES,
        metavar="NAME",
        help=f"{what}: {' or '.join(REWRITES)}; may be repeated",
    )


def check_mapping(rename: Rename, ptx: Ptx, label: str) -> None:
    """Raise PtxError if `rename` has a new name for an entry that the PTX lacks."""
    entries = set(ptx.entries)
    if missing := [old for old, _ in rename.mapping if old not in entries]:
        raise PtxError(f"{label}: no entry {missing[0]!r}; it has: {listed(ptx.entries)}")
