"""A stand-in for compiled kernels, which keeps what it is given; and CPU tensors that pass for CUDA tensors."""

from __future__ import annotations

import ctypes
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
from sm120_attn.config import SCALE_COLUMNS
from sm120_attn.kernels.append.config import AppendConfig
from sm120_attn.kernels.decode.config import DecodeConfig
from sm120_attn.kv_cache import launch as kv_cache
from sm120_attn.kv_cache.append import launch as append
from sm120_attn.launch import checks, prepare

CUDA = torch.device("cuda", 0)


class Sized:
    def __init__(self, width: int) -> None:
        self.width = width


class Int32:
    pass


class Float32:
    pass


class CUstream:
    pass


def fake_tensor(rank: int, last: int | None) -> SimpleNamespace:
    sizes = [Sized(32) for _ in range(rank - 1)] + [last or Sized(32)]
    return SimpleNamespace(element_type="bf16", shape=tuple(sizes), stride=(*(Sized(64) for _ in range(rank - 1)), 1))


NUMBERS = SimpleNamespace(element_type="i32", shape=(Sized(32),), stride=(1,))


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
        slots_of = {DecodeConfig: decode_slots, AppendConfig: append_slots}.get(type(config), attention_slots)
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


def attention_slots(config):
    rank = 3 if config.varlen else 4
    q, o = (fake_tensor(rank, config.head_dim) for _ in range(2))
    lse = fake_tensor(rank - 1, None) if config.lse else None
    k, v = (fake_tensor(4 if config.cache_rows else rank, config.head_dim) for _ in range(2))
    offsets = [NUMBERS if there else None for there in (config.varlen, config.varlen and not config.cache_rows)]
    cache = [NUMBERS if config.cache_rows else None, fake_tensor(2, None) if config.paged else None]
    sinks = NUMBERS if config.sinks else None
    one = SimpleNamespace(element_type="f32", shape=(Sized(32),) * 2, stride=(Sized(64),) * 2)
    factors = [one if there else None for there in (config.fp8, *[config.fp8 or config.kv_dtype] * 2)]
    scalars = [Int32(), Float32(), Float32(), Int32(), Int32(), CUstream()]
    names = (
        "q k v o lse cu_seqlens_q cu_seqlens_k cache_seqlens block_table sinks "
        "q_descale k_descale v_descale max_seqlen_q scale_log2 softcap "
        "window_left window_right stream"
    )
    return abi.slots_of(names.split(), [q, k, v, o, lse, *offsets, *cache, sinks, *factors, *scalars])


def decode_slots(config):
    rank = 3 if config.varlen else 4
    q, o = (fake_tensor(rank, config.head_dim) for _ in range(2))
    k, v = (fake_tensor(4, config.head_dim) for _ in range(2))
    lse = fake_tensor(rank - 1, None) if config.lse else None
    numbers = [NUMBERS if there else None for there in (config.varlen, True)]
    table = fake_tensor(2, None) if config.paged else None
    one = SimpleNamespace(element_type="f32", shape=(Sized(32),) * 2, stride=(Sized(64),) * 2)
    others = [NUMBERS if config.sinks else None, *[one if config.kv_dtype else None] * 2]
    others += [fake_tensor(4, 8) if config.kv_dtype in SCALE_COLUMNS else None] * 2
    others.append(NUMBERS if config.split else None)
    scalars = [Int32(), Int32(), Int32(), Float32(), Float32(), Int32(), Int32(), CUstream()]
    names = (
        "q k v o lse cu_seqlens_q cache_seqlens block_table sinks k_descale v_descale k_scales v_scales partials "
        "max_seqlen_q num_splits page_shift "
        "scale_log2 softcap window_left window_right stream"
    )
    return abi.slots_of(names.split(), [q, k, v, o, lse, *numbers, table, *others, *scalars])


def append_slots(config):
    rank = 3 if config.varlen else 4
    k_new, v_new = (fake_tensor(rank, config.head_dim) for _ in range(2))
    q, q_out = (fake_tensor(rank, config.head_dim) if config.rotary else None for _ in range(2))
    k, v = (fake_tensor(4, config.head_dim) for _ in range(2))
    angles = [fake_tensor(2, None) if config.rotary else None for _ in range(2)]
    one = SimpleNamespace(element_type="f32", shape=(Sized(32),) * 2, stride=(Sized(64),) * 2)
    descales = [one if config.kv_dtype else None] * 2
    descales += [fake_tensor(4, 8) if config.kv_dtype in SCALE_COLUMNS else None] * 2
    descales.append(fake_tensor(3, config.head_dim) if config.smooth else None)
    table = fake_tensor(2, None) if config.paged else None
    names = (
        "q k_new v_new k v q_out cache_seqlens new_seqlens block_table cu_seqlens_q rotary_cos rotary_sin "
        "k_descale v_descale k_scales v_scales k_mean tokens seqlen_q seqlen_new q_step page_shift stream"
    )
    numbers = [NUMBERS, NUMBERS, table, NUMBERS if config.varlen else None]
    return abi.slots_of(
        names.split(),
        [q, k_new, v_new, k, v, q_out, *numbers, *angles, *descales, *[Int32() for _ in range(5)], CUstream()],
    )


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
