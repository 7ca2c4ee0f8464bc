"""Stand-ins for torch and its tensors, without memory: what the launchers of gluon_kernels need."""

import inspect
import math
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace


def first_call_of(module):
    """`attention` of a launch module as its first call runs: the hot path before it needs more of torch."""
    parameters = inspect.signature(module.attention).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    first = getattr(module, "first_call", module.attention)
    return lambda *tensors, **options: first(*tensors, **defaults | options)


def strides_of(shape):
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class FakeTensor:
    """A tensor as a launcher sees it."""

    def __init__(self, shape=(1, 2, 256, 64), dtype="torch.float16", device="cuda", strides=None, address=256):
        class Device(str):
            type = device

        self.shape, self.dtype, self.device, self.address = shape, dtype, Device(f"{device}:0"), address
        self.strides = strides or strides_of(shape)

    def stride(self, dim=None):
        return self.strides if dim is None else self.strides[dim]

    def data_ptr(self):
        return self.address

    def element_size(self):
        return 1 if "float8" in str(self.dtype) else 2

    def numel(self):
        return math.prod(self.shape)

    def as_strided(self, shape, strides):
        return FakeTensor(tuple(shape), self.dtype, strides=tuple(strides))

    def view(self, dtype):
        """Two elements as one of another dtype."""
        if any(stride % 2 for stride in self.strides[:-1]):
            raise RuntimeError("self.stride() must be divisible by 2")
        halves = tuple(stride // 2 for stride in self.strides[:-1])
        return FakeTensor((*self.shape[:-1], self.shape[-1] // 2), dtype, strides=(*halves, 1))


class FakeTorch(ModuleType):
    """The part of torch that a launch needs, for a GPU of that compute capability with 100 SMs."""

    bfloat16, float16, float32 = "torch.bfloat16", "torch.float16", "torch.float32"
    float8_e5m2, int16 = "torch.float8_e5m2", "torch.int16"

    def __init__(self, capability=(10, 0)):
        super().__init__("torch")
        self.cuda = SimpleNamespace(
            get_device_capability=lambda device: capability,
            get_device_properties=lambda device: SimpleNamespace(multi_processor_count=100),
            device=lambda device: nullcontext(),
        )

    @staticmethod
    def empty_like(x, dtype=None):
        return FakeTensor(x.shape, dtype or x.dtype, strides=x.strides)

    @staticmethod
    def empty(shape, dtype, device):
        return FakeTensor(tuple(shape), dtype)
