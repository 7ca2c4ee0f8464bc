"""Whether a kernel orders what must be ordered: a smaller kernel that lost a barrier may differ through a race. Pure.

Read in the order of the text; branches are not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.ptx.program import Item


@dataclass(frozen=True, slots=True)
class Ordering:
    """What a kernel orders, each True where there is nothing to order.

    products: a `wgmma` between its fence and the wait for its group. threads: a barrier between each store to shared
    memory and the next read of it. proxies: a fence between a store to shared memory and a `wgmma`. filled: a store to
    shared memory before each read of it.
    """

    products: bool
    threads: bool
    proxies: bool
    filled: bool

    def covers(self, start: Ordering, threads: int) -> bool:
        """Whether this orders what `start` did. One thread needs no barrier."""
        return (
            self.products >= start.products
            and (self.threads >= start.threads or threads == 1)
            and self.proxies >= start.proxies
            and self.filled >= start.filled
        )


def ordering_of(items: Sequence[Item]) -> Ordering:
    """What the statements of a kernel order."""
    products = threads = proxies = True
    fenced = open_group = committed = False
    stored = unfenced = False
    filled, has_stored = True, False
    for item in items:
        parts = tuple(item.opcode.split("."))
        kind = parts[:2]
        if kind == ("wgmma", "fence"):
            fenced = True
        elif kind == ("wgmma", "mma_async"):
            products, proxies = products and fenced, proxies and not unfenced
            threads = threads and not stored
            open_group, committed = True, False
            filled = filled and has_stored
        elif kind == ("wgmma", "commit_group"):
            committed = open_group
        elif kind == ("wgmma", "wait_group"):
            open_group = open_group and not committed
        elif parts[0] in ("bar", "barrier"):
            stored = False
        elif parts[0] == "fence" and "proxy" in parts:
            unfenced = False
        elif _is_shared(parts):
            if parts[0] in ("st", "stmatrix", "cp", "atom", "red"):
                stored = unfenced = has_stored = True
            elif parts[0] != "mbarrier":
                threads, filled = threads and not stored, filled and has_stored
    return Ordering(products and not open_group, threads, proxies, filled)


def _is_shared(parts: Sequence[str]) -> bool:
    return any(part.startswith("shared") for part in parts)
