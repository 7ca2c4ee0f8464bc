"""FP8 kernels that are wrong on purpose, by one mistake in their MMA policy each: `check` must see them.

They are compiled where they are asked for, take the place of the right kernel for a while, and are not kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..compile import cache as compiled
from ..config import Config


def _turned_by_three(policy: Any, lane: Any) -> Any:
    odd = lane >> 4
    return (((lane & 7) + 3 * odd) & 7) + (odd << 3)


# What is put in the place of a policy's method, or of an attribute.
MISTAKES: dict[str, dict[str, Callable[..., Any] | int]] = {
    "V's rows in the order of the keys": {"v_row": lambda policy, lane: lane},
    "K turned by three rows": {"k_row": _turned_by_three},
    "masks not turned": {"key_offsets": lambda policy, lane: (2 * (lane & 3),)},
    "output rescaled by other rows' factors": {"lanes_of_queries": lambda policy, lane: (lane, lane)},
    "scale bytes of 126": {"scales": 0x7E7E7E7E},
}


def mistakes_of(policy: Any) -> list[str]:
    """Those that a policy can make: only the block-scaled MMA has scales."""
    return [name for name, changes in MISTAKES.items() if "scales" not in changes or policy.scales is not None]


def broken(policy: Any, mistake: str) -> Any:
    """The policy, which makes this mistake from now on."""
    for name, changed in MISTAKES[mistake].items():
        setattr(policy, name, partial(changed, policy) if callable(changed) else changed)
    return policy


@contextmanager
def in_place_of(config: Config, mistake: str) -> Iterator[None]:
    """Calls that would run this kernel run one that makes the mistake."""
    from ..kernels.mma import policy_of
    from ..launch import prepare as launch

    with compiled.instead(config, broken(policy_of(config), mistake)):
        launch.prepared.clear()
        try:
            yield
        finally:
            launch.prepared.clear()
