"""Guard zones around the buffers of a launch: every byte of them is looked at."""

from __future__ import annotations

import pytest
from fake_cuda import FakeCuda

from tritonhook.capture.launches.contents import ZEROS
from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.device.cuda_driver import Driver
from tritonhook.verify.memory import GUARD_BYTES, GuardedMemory
from tritonhook.verify.model import Outside

SIZE, ROOM = 600, 1024  # of a buffer, and up to where the zone behind it begins
LAUNCH = Launch(
    "k", (1, 1, 1), (1, 1, 1), (Pointer("a", 0), Pointer("b", 1)), (Buffer(SIZE, "uint8"), Buffer(SIZE, "uint8"))
)


@pytest.mark.parametrize(
    "offset", [-GUARD_BYTES, -GUARD_BYTES // 2, -1, SIZE, ROOM, ROOM + GUARD_BYTES // 2, ROOM + GUARD_BYTES - 1]
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_byte_anywhere_in_a_guard_zone_is_seen_once(number: int, offset: int) -> None:
    cuda = FakeCuda()
    memory = GuardedMemory(Driver(cuda), LAUNCH, None)
    memory.set_input(ZEROS, ())
    memory.restore()
    assert memory.outside() == ()
    cuda.gpu.write(memory.addresses[number] + offset, b"\0")
    assert memory.outside() == (Outside(number, offset, SIZE),)
    assert memory.outside() == (), "its trace is removed"
    assert memory.changed(memory.contents()) == 0
