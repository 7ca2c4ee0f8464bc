"""Fakes of torch's tensors, with the methods that recording a launch uses."""

from __future__ import annotations

from types import SimpleNamespace


class Storage:
    device = SimpleNamespace(type="cuda")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size

    def data_ptr(self) -> int:
        return self.address

    def nbytes(self) -> int:
        return self.size


class Tensor:
    """A view into a storage."""

    def __init__(self, storage: Storage, dtype: str = "float32", offset: int = 0, count: int = 1000) -> None:
        self.dtype, self.shape = dtype, (count,)
        self._storage, self._offset = storage, offset

    def data_ptr(self) -> int:
        return self._storage.address + self._offset

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def untyped_storage(self) -> Storage:
        return self._storage
