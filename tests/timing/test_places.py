"""Where code is loaded: another order and other paddings in each process, each code at several places."""

from __future__ import annotations

from collections import Counter

from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, Toolchain
from tritonhook.timing.places import CodePlaces, padding


class Driver:
    """A driver that notes what is loaded; `code` are the codes of a comparison."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.alive: set[int] = set()
        self.looked_up: list[int] = []

    def load(self, image: bytes) -> int:
        self.loaded.append(f"padding of {image.count(b'mad.lo')}")
        self.alive.add(len(self.loaded))
        return len(self.loaded)

    def function(self, module: int, name: str) -> int:
        self.looked_up.append(module)
        return module

    def unload(self, module: int) -> None:
        self.alive.remove(module)


def placed(seed: int, names: tuple[str, ...] = ("a", "b", "c"), places: int = 4) -> tuple[Driver, list[str]]:
    driver = Driver()

    def load(name: str) -> str:
        driver.loaded.append(name)
        return name

    found = list(CodePlaces(seed, driver).load({name: lambda name=name: load(name) for name in names}, places))
    assert all(name == code for name, code in found)
    return driver, [name for name, _ in found]


def test_each_code_is_at_several_places_in_an_order_of_the_process() -> None:
    orders = {tuple(placed(seed)[1]) for seed in range(20)}
    assert all(Counter(order) == {"a": 4, "b": 4, "c": 4} for order in orders)
    assert len(orders) == 20, "each process has its own"
    assert {order[0] for order in orders} == {"a", "b", "c"}, "no code always comes first"
    assert placed(3)[0].loaded == placed(3)[0].loaded, "a seed gives the same places"


def test_processes_that_follow_each_other_have_each_code_at_each_place_once() -> None:
    """Five processes with an order drawn for each had the candidate first in all five: equal code was called slower."""
    orders = [CodePlaces(seed).order("abc") for seed in range(3 * 20)]
    for first in range(0, len(orders), 3):
        assert all(
            sorted(at_one_place) == ["a", "b", "c"] for at_one_place in zip(*orders[first : first + 3], strict=True)
        )
    assert len({tuple(order) for order in orders}) == 6, "all orders are drawn"
    places = CodePlaces(0)
    assert len({tuple(places.order("abcdef")) for _ in range(9)}) > 1, "a second order of one process is another"


def test_a_padding_is_as_long_as_it_should_be(tools: Toolchain) -> None:
    """ptxas makes an instruction of each step: it folds none of them."""
    sizes = []
    for steps in (16, 80, 1040):
        made = tools.assemble(
            Ptx(padding(steps).replace("6.4", "8.0").replace("sm_70", "sm_90")), ("--gpu-name=sm_90",)
        )
        assert isinstance(made, Assembled)
        sizes.append(len(made.cubin.text("tritonhook_padding")))
    assert sizes[0] >= 16 * 16 and sizes[2] - sizes[1] >= 900 * 16
