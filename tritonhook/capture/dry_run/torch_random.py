"""The GPU's random number generators in a dry run. Their numbers come from a CPU generator."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import torch

_STEP = 4  # increment of the offset per draw, because Philox makes four numbers at once
_MOST_STATES = 4096  # maximum number of states kept in memory, 5 KB each
_states: dict[tuple[int, int], Any] = {}  # states of CPU generators, by (seed, offset)
_steps = itertools.count(_STEP, _STEP)


def _keep(seed: int, offset: int, state: Any) -> None:
    _states[seed, offset] = state
    if len(_states) > _MOST_STATES:
        del _states[next(iter(_states))]


class DryGenerator(torch.Generator):  # type: ignore[misc]
    """A random number generator of the GPU. Its state is a seed and an offset; drawing numbers advances the offset."""

    def __new__(cls, own: Any = None) -> Any:
        return super().__new__(cls)

    def __init__(self, own: Any = None) -> None:
        self.own = own or torch.Generator()  # the CPU generator that torch's functions get
        self._seed: int = self.own.initial_seed()
        self._offset, self._last = 0, self.own.get_state()

    @property
    def device(self) -> Any:
        from tritonhook.capture.dry_run.torch_tensors import gpu

        return gpu()

    def manual_seed(self, seed: int) -> DryGenerator:
        self.own.manual_seed(seed)
        self._seed, self._offset, self._last = seed % (1 << 64), 0, self.own.get_state()
        return self

    def seed(self) -> int:
        self.manual_seed(self.own.seed())
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        with torch._C.DisableTorchFunction():
            now = self.own.get_state()
            if not torch.equal(now, self._last):
                self._offset, self._last = next(_steps), now
        _keep(self._seed, self._offset, now)
        return self._offset

    def set_offset(self, offset: int) -> None:
        self._set(self._seed, offset)

    def get_state(self) -> Any:
        packed = bytearray(struct.pack("<QQ", self._seed, self.get_offset()))
        with torch._C.DisableTorchFunction():
            return torch.frombuffer(packed, dtype=torch.uint8).clone()

    def set_state(self, state: Any) -> DryGenerator:
        with torch._C.DisableTorchFunction():
            self._set(*struct.unpack("<QQ", bytes(state.tolist())))
        return self

    def _set(self, seed: int, offset: int) -> None:
        """Set seed and offset. If the generator had this state before, restore the stored CPU state. Otherwise the
        program made the state up, e.g. with a higher offset: seed the CPU generator."""
        if (state := _states.get((seed, offset))) is None:
            self.own.manual_seed((seed + offset) % (1 << 64))
        else:
            self.own.set_state(state)
        self._seed, self._offset, self._last = seed, offset, self.own.get_state()

    def clone_state(self) -> DryGenerator:
        made = DryGenerator(self.own.clone_state())
        made._seed, made._offset, made._last = self._seed, self._offset, self._last
        return made

    def graphsafe_get_state(self) -> DryGenerator:
        return self

    def graphsafe_set_state(self, other: DryGenerator) -> None:
        self.set_state(other.get_state())
