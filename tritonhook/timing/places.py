"""The order of samples; and where code lies on the GPU: drawn anew for each process and, where it can be loaded several
times, for each block.

An address can make code faster or slower: by the lines of the instruction caches that it shares, or its offset in its
page. Codes that every process loads in one order keep such an effect, and it looks like a gain. So the order of loading
is drawn and turned from process to process, each code gets padding of a drawn size in front of it, and is loaded at
several addresses. The remaining effect differs between processes and widens the interval.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError

PLACES = 4  # at which each code of a comparison is loaded in one process
RACE_PLACES = 2  # in a race of many codes
_PADDINGS = 3  # at most, in front of a code
_STEPS = tuple(range(16, 1041, 64))  # instructions of a padding, of 16 bytes each; few sizes: the driver caches them
_NAME = "tritonhook_padding"

T = TypeVar("T")


class CodePlaces:
    """Draws addresses for the codes of one process. driver: loads the paddings."""

    def __init__(self, seed: int, driver: Any = None) -> None:
        self._seed, self._orders = seed, 0
        self._draw = random.Random(f"places {seed}")
        self._driver = driver
        self._paddings: list[int] = []

    def order(self, names: Sequence[T]) -> list[T]:
        """Draw an order. Seeds that follow each other, as many as names, have each name at each position once: with
        independent orders in five processes, one code of three keeps a certain position in 1 of 243 runs."""
        self._orders += 1
        group, turn = divmod(self._seed, len(names))
        drawn = random.Random(f"order {group} {self._orders}").sample(names, len(names))
        return [*drawn[turn:], *drawn[:turn]]

    def load(self, codes: Mapping[str, Callable[[], T]], places: int) -> Iterator[tuple[str, T]]:
        """Load each code at so many addresses, in random order, with padding between them."""
        for name in self.order([name for name in codes for _ in range(places)]):
            self.pad()
            yield name, codes[name]()

    def pad(self) -> None:
        """Load a drawn amount of code that nothing launches. Where the driver cannot assemble it, nothing is loaded."""
        with suppress(DeviceError):
            self._driver = self._driver or Driver()
            for _ in range(self._draw.randint(0, _PADDINGS)):
                module = self._driver.load(padding(self._draw.choice(_STEPS)).encode() + b"\0")
                self._paddings.append(module)
                self._driver.function(module, _NAME)  # loads the code itself: the driver may put that off

    def free(self) -> None:
        while self._paddings:
            self._driver.unload(self._paddings.pop())


def padding(steps: int) -> str:
    """Write the PTX of a kernel with at least `steps` instructions. It fits any GPU; the driver assembles it."""
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
    """Draw an order of `rounds` samples of each side, in which each side follows each side, itself too, equally often.

    The first entry is one more: the predecessor of the first sample. rounds: a multiple of the number of sides.
    Every len(sides) rounds are balanced by themselves, so that a drift is in all sides alike.
    """
    if rounds % len(sides):
        raise ValueError(f"{rounds} rounds of {len(sides)} sides cannot be balanced")
    order = [draw.choice(sides)]
    for _ in range(rounds // len(sides)):
        order += _circuit(sides, order[-1], draw)
    return order


def drawn_order(sides: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Draw an order of `rounds` samples of each side, each round by itself, with one more entry in front as above.

    For many sides, where a balanced order takes too many rounds."""
    return [draw.choice(sides), *(side for _ in range(rounds) for side in draw.sample(list(sides), len(sides)))]


def _circuit(sides: Sequence[str], start: str, draw: random.Random) -> list[str]:
    """Draw a random walk that takes every ordered pair of sides once and ends where it starts (Hierholzer's algorithm).

    The result omits the start, which is the previous sample.
    """
    ahead = {side: draw.sample(list(sides), len(sides)) for side in sides}
    walk: list[str] = []
    stack = [start]
    while stack:
        if ahead[stack[-1]]:
            stack.append(ahead[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[-2::-1]
