"""A stand-in for compiled kernels, which keeps what it is given; and CPU tensors that pass for CUDA tensors."""

from __future__ import annotations

import ctypes
import functools
import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from sm120_attn import attention_with_kv_cache
from sm120_attn.compile import abi, cache
from sm120_attn.compile.build import build
from sm120_attn.kv_cache import launch as kv_cache
from sm120_attn.kv_cache.append import launch as append
from sm120_attn.launch import checks, prepare

CUDA = torch.device("cuda", 0)


class FakeKernel:
    """Takes the place of compiled kernels. calls: each argument by name, per call; configs: the kernels asked for."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.configs: list = []
        self.error = 0
        self.delay_s = 0.0
        self.lock = threading.Lock()

    def get(self, config):
        self.configs.append(config)
        slots = slots_of(config)

        def entry(address):
            time.sleep(self.delay_s)  # another thread may run now, as during a real launch
            pointers = (ctypes.c_void_p * (len(slots) + 1)).from_address(address)
            found = {}
            for slot, pointer in zip(slots, pointers, strict=False):
                size = abi.Layout([slot]).packer.size
                values = abi.Layout([slot]).packer.unpack(ctypes.string_at(pointer, size))
                found[slot.name] = values if slot.rank else values[0]
            with self.lock:
                self.calls.append(found)
            ctypes.c_int32.from_address(pointers[len(slots)]).value = self.error

        return SimpleNamespace(config=config, layout=abi.Layout(slots), entry=entry)


def refuses(kernel: FakeKernel, message: str, tensors, options) -> None:
    """Assert that attention_with_kv_cache raises an error with this message, and launches nothing."""
    with pytest.raises((TypeError, ValueError), match=message):
        attention_with_kv_cache(*tensors, **options)
    assert kernel.calls == []


@functools.cache
def slots_of(config):
    """The arguments of the kernel that would be compiled."""
    host, arguments = build(config)
    return abi.slots_of(list(inspect.signature(host.__call__).parameters), arguments)


@contextmanager
def fake_kernels() -> Iterator[FakeKernel]:
    """CPU tensors pass for CUDA tensors of device 0, an RTX 5090's sizes; kernels are stand-ins."""
    made = FakeKernel()
    real = checks.check_kinds

    def check_kinds(tensors, q, form, also=()):
        moved = {n: SimpleNamespace(dim=t.dim, dtype=t.dtype, shape=t.shape, device=CUDA) for n, t in tensors.items()}
        real(moved, SimpleNamespace(dtype=q.dtype, device=CUDA), form, also)

    with (
        mock.patch.dict(prepare.prepared_calls, clear=True),
        mock.patch.object(cache, "get", made.get),
        mock.patch.object(cache, "is_ready", lambda config: True),
        mock.patch.dict(kv_cache.prepared_calls, clear=True),
        mock.patch.dict(append.prepared_calls, clear=True),
        mock.patch.object(append, "device_facts", lambda index: ("sm_120a", 170)),
        mock.patch.object(prepare, "device_facts", lambda index: ("sm_120a", 170)),
        mock.patch.object(kv_cache, "device_facts", lambda index: ("sm_120a", 170)),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False),
        mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda index: 0x5EA, create=True),
        mock.patch.object(torch._C, "_cuda_getDevice", lambda: -1, create=True),  # what a CPU tensor's device is called
        mock.patch.object(checks, "check_kinds", check_kinds),
    ):
        yield made


def qkv(
    *shape: int, heads_kv: int | None = None, keys: int | None = None, dtype=torch.bfloat16
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    *outer, rows, heads, dim = shape
    kv = (*outer, rows if keys is None else keys, heads if heads_kv is None else heads_kv, dim)
    return torch.zeros(shape, dtype=dtype), torch.zeros(kv, dtype=dtype), torch.zeros(kv, dtype=dtype)
