"""Launches of a dry run that this process executes: what is written to the tensors."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from emulated import module_of  # noqa: E402
from fake_tensors import Storage, Tensor  # noqa: E402

from tritonhook.capture.dry_run.gpu import Emulation  # noqa: E402
from tritonhook.capture.launches.record import Buffer, Launch, Pointer  # noqa: E402
from tritonhook.children import dry_launches as module  # noqa: E402
from tritonhook.errors import EmulationError, NotUnderstood  # noqa: E402

ADD = "mad.wide.u32 %rd9, %r20, 4, %rd20; ld.global.b32 %r1, [%rd9]; add.u32 %r1, %r1, 5; st.global.b32 [%rd9], %r1;"


class Kernel:
    """As one of Triton's compiled kernels; or of the CuTe DSL, with a hash of its own."""

    def __init__(self, array: Any, start: int = 0) -> None:
        self.name, self.hash, self.asm = "k", "hash of k", {"ptx": module_of(ADD, 1).text}
        tensor = Tensor(Storage(array.ctypes.data, array.nbytes))
        launch = Launch("k", (1, 1, 1), (8, 1, 1), (Pointer("x", 0),), (Buffer(array.nbytes - start, "uint32"),))
        self.described = launch, [(tensor, start, array.nbytes - start)]


def test_tensors_hold_what_the_kernel_stores() -> None:
    array, emulator, asked = np.arange(10, dtype=np.uint32), module.Emulator(Emulation()), list[int]()
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
        module.Emulator(Emulation()).execute("k", "key", lambda: module_of("", 0).text, described)
    assert str(caught.value) == said and type(caught.value.__cause__) is (cause or type(None))
    assert caught.value.__suppress_context__


# --- the front ends ------------------------------------------------------------------------------
