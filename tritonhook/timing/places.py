"""Randomise the addresses of code on the GPU, and the order of samples. The addresses differ between processes. If code
can be loaded several times, they also differ between blocks.

The address of code affects its speed: by the cache lines that it shares with other code, or by its offset in its page.
If every process loads codes in the same order, such an effect remains and looks like a gain. So the order of loading is
random and rotated from process to process. Each code gets padding of random size in front of it, and is loaded at
several addresses. The remaining effect differs between processes and widens the interval.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError

PLACES = 4  # addresses at which a process loads each code of a comparison
RACE_PLACES = 2  # addresses at which a process loads each code if it times many codes (`Timer.racing`)
_PADDINGS = 3  # most paddings in front of a code
# Sizes of a padding, in instructions of 16 bytes. They are few, so that the driver caches the assembled paddings.
_STEPS = tuple(range(16, 1041, 64))
_NAME = "tritonhook_padding"

T = TypeVar("T")


class CodePlaces:
    """Randomises the addresses of code in one process. seed: different for each process. driver: loads the paddings."""

    def __init__(self, seed: int, driver: Any = None) -> None:
        self._seed, self._orders = seed, 0
        self._draw = random.Random(f"places {seed}")
        self._driver = driver
        self._paddings: list[int] = []

    def order(self, names: Sequence[T]) -> list[T]:
        """Return the names in random order. Among len(names) successive seeds, each name has each position once. (If
        the orders of five processes were independent, a given one of three codes would be first in all five in 1 of 243
        runs.)
        """
        self._orders += 1
        group, turn = divmod(self._seed, len(names))
        drawn = random.Random(f"order {group} {self._orders}").sample(names, len(names))
        return [*drawn[turn:], *drawn[:turn]]

    def load(self, codes: Mapping[str, Callable[[], T]], places: int) -> Iterator[tuple[str, T]]:
        """Load each code `places` times, in random order, with padding between. codes: name -> function that loads the
        code. Yields each name with the function's result."""
        for name in self.order([name for name in codes for _ in range(places)]):
            self.pad()
            yield name, codes[name]()

    def pad(self) -> None:
        """Load a random amount of code that is never launched. If the driver cannot assemble it, load nothing."""
        with suppress(DeviceError):
            self._driver = self._driver or Driver()
            for _ in range(self._draw.randint(0, _PADDINGS)):
                module = self._driver.load(padding(self._draw.choice(_STEPS)).encode() + b"\0")
                self._paddings.append(module)
                self._driver.function(module, _NAME)  # makes the driver load the code, which it may do lazily

    def free(self) -> None:
        while self._paddings:
            self._driver.unload(self._paddings.pop())


def padding(steps: int) -> str:
    """Make the PTX of a kernel with at least `steps` instructions, for any GPU from sm_70 on."""
    body = "\n".join("    mad.lo.u32 %r1, %r1, %r1, %r2;" for _ in range(steps))
    return f"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry {_NAME}(.param .u64 place)
{{
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [place];
    ld.global.u32 %r1, [%rd1];
    ld.global.u32 %r2, [%rd1+4];
{body}
    st.global.u32 [%rd1], %r1;
    ret;
}}
"""


# --- the order of samples -------------------------------------------------------------------------


def balanced_order(sides: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Make a random order of `rounds` samples per side, in which each side follows each side (also itself) equally
    often.

    The result has one additional entry in front, the predecessor of the first sample. rounds: a multiple of the number
    of sides. Each group of len(sides) rounds is balanced by itself, so that a drift affects all sides equally.
    """
    if rounds % len(sides):
        raise ValueError(f"{rounds} rounds of {len(sides)} sides cannot be balanced")
    order = [draw.choice(sides)]
    for _ in range(rounds // len(sides)):
        order += _circuit(sides, order[-1], draw)
    return order


def drawn_order(sides: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Make a random order of `rounds` samples per side, each round shuffled by itself. One additional entry in front is
    the predecessor of the first sample. Use it for many sides, for which a balanced order takes too many rounds."""
    return [draw.choice(sides), *(side for _ in range(rounds) for side in draw.sample(list(sides), len(sides)))]


def _circuit(sides: Sequence[str], start: str, draw: random.Random) -> list[str]:
    """Make a random closed walk over the sides in which each ordered pair of sides occurs once, one after the other
    (Hierholzer's algorithm). The result omits the start, which is the previous sample."""
    ahead = {side: draw.sample(list(sides), len(sides)) for side in sides}
    walk: list[str] = []
    stack = [start]
    while stack:
        if ahead[stack[-1]]:
            stack.append(ahead[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[-2::-1]
