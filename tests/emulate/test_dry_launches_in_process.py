"""Launches of a dry run that this process executes: what is written to the tensors, how many CTAs run at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from emulated import module_of  # noqa: E402
from fake_tensors import Storage, Tensor  # noqa: E402

from tritonhook.capture.launches.record import Buffer, Launch, Pointer  # noqa: E402
from tritonhook.emulate import dry_launches as module  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.errors import EmulationError, NotUnderstood  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402

ADD = "mad.wide.u32 %rd9, %r20, 4, %rd20; ld.global.b32 %r1, [%rd9]; add.u32 %r1, %r1, 5; st.global.b32 [%rd9], %r1;"


class Kernel:
    """As one of Triton's compiled kernels; or of the CuTe DSL, with a hash of its own."""

    def __init__(self, array: Any, start: int = 0) -> None:
        self.name, self.hash, self.asm = "k", "hash of k", {"ptx": module_of(ADD, 1).text}
        tensor = Tensor(Storage(array.ctypes.data, array.nbytes))
        launch = Launch("k", (1, 1, 1), (8, 1, 1), (Pointer("x", 0),), (Buffer(array.nbytes - start, "uint32"),))
        self.described = launch, [(tensor, start, array.nbytes - start)]


def test_tensors_hold_what_the_kernel_stores() -> None:
    array, emulator, asked = np.arange(10, dtype=np.uint32), module.Emulator(), list[int]()
    kernel = Kernel(array, 8)

    def text() -> str:
        asked.append(1)
        return kernel.asm["ptx"]

    for _ in range(2):  # the kernel is read once
        emulator.execute("k", "key", text, lambda: kernel.described)
    assert array.tolist() == [0, 1, *range(12, 20)] and asked == [1] and list(emulator._kernels) == ["key"]


def test_nothing_lies_in_a_tensor_without_elements() -> None:
    assert module._bytes_of(Tensor(Storage(0, 0)), 0, 0).shape == (0,)
    array = np.arange(6, dtype=np.uint8)
    view = module._bytes_of(Tensor(Storage(array.ctypes.data, 6)), 2, 3)
    view[:] = view + 10
    assert view.dtype == np.uint8 and array.tolist() == [0, 1, 12, 13, 14, 5]


@pytest.mark.parametrize(
    ("error", "said", "cause"),
    [
        (NotUnderstood("clocks"), f"k cannot be emulated: {NotUnderstood('clocks')}", None),
        (KeyError("a"), "k cannot be emulated: KeyError: 'a'", KeyError),
    ],
)
def test_a_launch_that_cannot_be_executed(error: Exception, said: str, cause: type | None) -> None:
    def described() -> Any:
        raise error

    with pytest.raises(EmulationError) as caught:
        module.Emulator().execute("k", "key", lambda: module_of("", 0).text, described)
    assert str(caught.value) == said and type(caught.value.__cause__) is (cause or type(None))
    assert caught.value.__suppress_context__


REGISTERS = ".reg .pred %p<2>; .reg .b16 %rs<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .f32 %f<2>; .reg .b8 %rb<2>;"
MOVES = {
    "p": "setp.eq.u32 %p1, 0, 0;", "rs": "mov.b16 %rs1, 1;", "r": "mov.b32 %r1, 1;", "rd": "mov.b64 %rd1, 1;",
    "f": "mov.f32 %f1, 0f00000000;", "rb": "mov.b8 %rb1, 1;",
}  # fmt: skip


@pytest.mark.parametrize(
    ("used", "most", "grid", "block", "cluster", "together"),
    [
        ("", 95, (5, 1, 1), (32, 1, 1), (1, 1, 1), [[0, 1], [2, 3], [4]]),
        ("", 1, (3, 1, 1), (32, 1, 1), (1, 1, 1), [[0], [1], [2]]),
        ("", 33 * 1024, (2, 2, 3), (32, 32, 1), (1, 1, 1), [[*range(12)]]),
        ("p", 64, (3, 1, 1), (33, 1, 1), (1, 1, 1), [[0], [1], [2]]),
        ("rb", 2 * 64, (3, 1, 1), (3, 4, 3), (1, 1, 1), [[0, 1], [2]]),
        ("rs", 64 * 3 - 1, (4, 1, 1), (32, 1, 1), (1, 1, 1), [[0, 1], [2, 3]]),
        ("r", 128 * 3, (1, 2, 2), (2, 4, 4), (1, 1, 1), [[0, 1, 2], [3]]),
        ("rd", 256, (1, 1, 2), (1, 1, 1), (1, 1, 1), [[0], [1]]),
        ("f", 16 * 32 * 3, (3, 1, 1), (32, 1, 1), (1, 1, 1), [[0, 1, 2]]),
        ("r rd", 12 * 32 * 2, (3, 1, 1), (32, 1, 1), (1, 1, 1), [[0, 1], [2]]),
        ("r", 128 * 5, (8, 1, 1), (32, 1, 1), (2, 1, 1), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("r", 4 * 128, (6, 2, 1), (32, 1, 1), (2, 2, 1), [[0, 1, 2, 3], [4, 5]]),
        ("r", 128, (1, 2, 2), (32, 1, 1), (1, 2, 2), [[0, 1, 2, 3]]),
    ],
)  # fmt: skip
def test_as_many_ctas_at_a_time_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, used: str, most: int, grid: Any, block: Any, cluster: Any, together: Any
) -> None:
    """Clusters are not taken apart, and nothing is executed twice."""
    body = " ".join(MOVES[one] for one in used.split())
    header = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    kernel = read_kernel(Ptx(f"{header}.visible .entry k() {{\n{REGISTERS}\n{body}\nret;\n}}"), "k")
    ran = list[Any]()

    def run_ptx(*given: Any) -> Any:
        ran.append(given)
        return SimpleNamespace(contents=[f"after {len(ran)}".encode()])

    monkeypatch.setattr(module, "_MOST_REGISTERS", most)
    monkeypatch.setattr(module, "run_ptx", run_ptx)
    launch = Launch("k", grid, block, (), (), cluster)
    assert module._stored(kernel, Run(launch, (), seed=3), [b"before"]) == [f"after {len(together)}".encode()]
    before = [[b"before"], *([f"after {number + 1}".encode()] for number in range(len(together)))]
    assert ran == [(kernel, Run(launch, ctas, seed=3), given) for ctas, given in zip(together, before, strict=False)]


# --- the front ends ------------------------------------------------------------------------------
