"""Run the Blackwell attention's own source on the CPU: partitions as threads, barriers, MMA and TMA.

It executes device/pipeline.py and blackwell/kernel.py unchanged, with `triton` replaced by the classes below.
Partitions that are not blocked go on in random order, and asynchronous operations complete after any delay: a missing
wait gives wrong numbers, a wrong one a deadlock. Memory layouts and proxies are not modelled. Only probabilities are
rounded, if a `Problem` says how; other numbers are Python floats, and an operation on memory is atomic. TMA reads zeros
outside a tensor, and writes nothing there.
"""

import math
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from operator import add, eq, ge, gt, le, lt, mul, sub
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.gluon_kernels.support.kernel_source import Constexpr, Edit, decorator, fake_module, load, unchanged


class ProtocolError(AssertionError):
    """A deadlock, a barrier that completed a round that its waiter missed, or a copy that was not announced."""


class Tensor:
    """A vector (shape (n,)) or a matrix (shape (m, n)) of Python numbers, with NumPy's broadcasting of 1."""

    type = SimpleNamespace(layout=None)

    def __init__(self, rows: list[list], ndim: int = 2):
        self.rows, self.ndim = rows, ndim
        self.shape = (len(rows[0]),) if ndim == 1 else (len(rows), len(rows[0]))

    def __getitem__(self, key):
        values = self.rows[0]
        return Tensor([[x] for x in values]) if key[1] is None else Tensor([values])

    def columns(self, start: int, length: int) -> "Tensor":
        return Tensor([row[start : start + length] for row in self.rows])

    def to(self, dtype) -> "Tensor":
        return elementwise(dtype.round, self)

    def __neg__(self):
        return elementwise(lambda x: -x, self)


def elementwise(function, *operands):
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        return function(*operands)
    height = max(len(x.rows) for x in tensors)
    width = max(len(x.rows[0]) for x in tensors)

    def at(x, i, j):
        if not isinstance(x, Tensor):
            return x
        row = x.rows[i if len(x.rows) > 1 else 0]
        return row[j if len(row) > 1 else 0]

    rows = [[function(*(at(x, i, j) for x in operands)) for j in range(width)] for i in range(height)]
    return Tensor(rows, max(x.ndim for x in tensors))


def truediv(a: float, b: float) -> float:
    return a / b if b else math.copysign(math.inf, a) if a else math.nan


for _apply in (add, sub, mul, truediv, le, ge, lt, gt, eq):
    _name = _apply.__name__
    setattr(Tensor, f"__{_name}__", lambda a, b, apply=_apply: elementwise(apply, a, b))
    setattr(Tensor, f"__r{_name}__", lambda a, b, apply=_apply: elementwise(apply, b, a))


def reduce_rows(x: Tensor, combine) -> Tensor:
    results = []
    for row in x.rows:
        total = row[0]
        for value in row[1:]:
            total = combine(total, value)
        results.append(total)
    return Tensor([results], 1)


def exp2(x: float) -> float:
    return 0.0 if x == -math.inf else 2.0**x


def log2(x: float) -> float:
    return math.log2(x) if x else -math.inf


def exact(x: float) -> float:
    return x


def e4m3(x: float) -> float:
    """Round to e4m3: 3 bits of mantissa, multiples of 2^-9. The kernel's probabilities stay below 448."""
    if not x:
        return x
    step = 2.0 ** (max(math.frexp(x)[1] - 1, -6) - 3)
    return round(x / step) * step


class Machine:
    """One CTA: partitions take turns in random order, as one holds the baton; asynchronous operations complete late."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.loads: list = []  # complete in any order
        self.mmas: list = []  # complete in order
        self.stores: list = []  # complete in order
        # How likely each queue completes an operation while a partition could go on; 0: as late as possible.
        self.eagerness = [self.random.choice((0, 0.1, 0.7)) for _ in range(3)]
        self.failure: BaseException | None = None
        self.local = threading.local()

    def run(self, partitions) -> None:
        self.back = threading.Semaphore(0)
        self.batons = {name: threading.Semaphore(0) for name, _ in partitions}
        self.blocked_on: dict = dict.fromkeys(self.batons)
        threads = [threading.Thread(target=self._partition, args=item, daemon=True) for item in partitions]
        for thread in threads:
            thread.start()
        try:
            while self.blocked_on and self.failure is None:
                self._step()
        except ProtocolError as error:
            self.failure = error
        for baton in self.batons.values():
            baton.release()  # after a failure the blocked partitions give up
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        for queue in (self.loads, self.mmas, self.stores):
            for operation in queue:
                operation()

    def _step(self) -> None:
        ready = [name for name, condition in self.blocked_on.items() if condition is None or condition[0]()]
        pending, eager = [], []
        for queue, eagerness in zip((self.loads, self.mmas, self.stores), self.eagerness, strict=True):
            if queue:
                pending.append(queue)
                if self.random.random() < eagerness:
                    eager.append(queue)
        if not ready and not pending:
            waits = ", ".join(f"{name} for {condition[1]}" for name, condition in self.blocked_on.items())
            self.failure = ProtocolError(f"deadlock: {waits}")
        elif eager or not ready:
            queue = self.random.choice(eager or pending)
            queue.pop(self.random.randrange(len(queue)) if queue is self.loads else 0)()
        else:
            name = self.random.choice(ready)
            self.blocked_on[name] = None
            self.batons[name].release()
            self.back.acquire()

    def _partition(self, name, body) -> None:
        self.local.name = name
        self.batons[name].acquire()
        try:
            body()
        except BaseException as error:
            self.failure = self.failure or error
        del self.blocked_on[name]
        self.back.release()

    def pause(self, condition=None) -> None:
        """Hand the baton back, and wait until `condition`, a pair (callable, text), holds."""
        name = self.local.name
        self.blocked_on[name] = condition
        self.back.release()
        self.batons[name].acquire()
        if self.failure is not None:
            raise ProtocolError(f"{name} stopped: another partition failed")


class Barrier:
    """An mbarrier that counts one arrival and announced bytes. Each waiter must see every round, or ProtocolError."""

    def __init__(self, label: str):
        self.label, self.completed, self.announced = label, 0, 0
        self.ahead: defaultdict[str, set[int]] = defaultdict(set)  # completions beyond its waits, by partition
        self.arrived: Counter[str] = Counter()  # how often, by partition
        self.waited: Counter[str] = Counter()

    def arrive(self, who: str) -> None:
        if self.announced:
            raise ProtocolError(f"{self.label}: completed while a copy was under way")
        self.completed += 1
        self.arrived[who] += 1

    def copied(self, size: int, who: str) -> None:
        if self.announced != size:
            raise ProtocolError(f"{self.label}: {size} bytes came, {self.announced} were announced")
        self.announced = 0
        self.arrive(who)

    def passes(self, phase: int) -> bool:
        return self.completed % 2 != phase

    def passed(self, who: str) -> None:
        ahead = self.ahead[who]
        ahead.add(self.completed - self.waited[who])
        self.waited[who] += 1
        if len(ahead) > 1 or not ahead <= {0, 1}:
            raise ProtocolError(f"{self.label}: {who} missed a round ({ahead} completions ahead)")


@dataclass(frozen=True)
class Memory:
    """A slot of shared or tensor memory, or a range of its columns: rows of numbers, NaN before the first write."""

    machine: Machine
    cell: list[list[float]]
    start: int
    length: int
    ndim: int = 2
    transposed: bool = False

    def permute(self, order) -> "Memory":
        return replace(self, transposed=not self.transposed)

    def slice(self, start: int, length: int) -> "Memory":
        return replace(self, start=self.start + start, length=length)

    def load(self, layout=None) -> Tensor:
        self.machine.pause()
        return Tensor(self.read(), self.ndim)

    def store(self, value: Tensor) -> None:
        self.machine.pause()
        self.write(value.rows)

    def read(self) -> list[list]:
        rows = [row[self.start : self.start + self.length] for row in self.cell]
        return [list(column) for column in zip(*rows, strict=True)] if self.transposed else rows

    def write(self, rows: list[list]) -> None:
        for target, row in zip(self.cell, rows, strict=True):
            target[self.start : self.start + self.length] = row


class Buffer:
    """Slots of memory, or of barriers."""

    def __init__(self, slots: list):
        self.slots = slots

    def index(self, slot: int):
        return self.slots[slot]


@dataclass
class Descriptor:
    """A global tensor [batch][head][row][column] as TMA sees it."""

    heads: list[list[list[list]]]
    block: list[int]  # rows, columns
    dtype: object
    layout = None

    @property
    def block_type(self):
        return SimpleNamespace(nbytes=4 * math.prod(self.block))

    def read(self, at) -> list[list]:
        batch, head, row, column = at
        rows = self.heads[batch][head]
        width = range(column, column + self.block[1])
        return [
            [rows[i][j] if i < len(rows) and j < len(rows[i]) else 0.0 for j in width]
            for i in range(row, row + self.block[0])
        ]

    def write(self, at, block: list[list]) -> None:
        batch, head, row, column = at
        for target, values in zip(self.heads[batch][head][row:], block, strict=False):
            target[column : column + self.block[1]] = values


@dataclass
class Pointer:
    memory: list
    offset: Tensor | int = 0

    def __add__(self, offset):
        return Pointer(self.memory, self.offset + offset)


class Partitions:
    """The parts of the fake Gluon API that both models share, bound to one machine and one position in the grid."""

    allocate: Any  # each model has its own
    tma_load: Any
    tma_store: Any
    store_wait: Any

    def __init__(self, seed: int, program: int, programs: int):
        self.machine = Machine(seed)
        self.program, self.programs = program, programs

    def init(self, barrier: Barrier, count: int) -> None:
        assert count == 1 and barrier.completed == 0

    def wait(self, barrier: Barrier, phase: int, pred: bool = True) -> None:
        if pred:
            self.machine.pause((lambda: barrier.passes(phase), f"{barrier.label} phase {phase}"))
            barrier.passed(self.machine.local.name)

    def arrive(self, barrier: Barrier, count: int = 1) -> None:
        self.machine.pause()
        barrier.arrive(self.machine.local.name)

    def expect(self, barrier: Barrier, size: int) -> None:
        barrier.announced += size

    def warp_specialize(self, functions, warps, registers) -> None:
        self.shared = functions[0][1][0]  # the PartitionArgs, for tests that count arrivals
        self.machine.run([(f.__name__, lambda f=f, args=args: f(*args)) for f, args in functions])

    def gluon(self, **language) -> dict[str, object]:
        """The modules of Gluon that both kernels import, by name. language: more members of gluon.language."""
        gl = SimpleNamespace(
            constexpr=Constexpr, tensor=object, shared_memory_descriptor=object, float32="fp32", int64="barrier",
            SliceLayout=lambda *_: None, static_range=range, to_tensor=lambda x: x,
            program_id=lambda axis: self.program, num_programs=lambda axis: self.programs,
            allocate_shared_memory=self.allocate, warp_specialize=self.warp_specialize, **language,
        )  # fmt: skip
        gluon = SimpleNamespace(jit=decorator, must_use_result=decorator, constexpr_function=decorator, language=gl)
        return {
            "triton.experimental": fake_module("triton.experimental", {"gluon": gluon}),
            "triton.experimental.gluon": fake_module("triton.experimental.gluon", {"language": gl}),
        }

    def copies(self) -> dict[str, object]:
        """The members of gluon.language.nvidia that both kernels import."""
        mbarrier = SimpleNamespace(
            MBarrierLayout=lambda: None, init=self.init, wait=self.wait, arrive=self.arrive, expect=self.expect
        )
        return {"mbarrier": mbarrier, "tma": SimpleNamespace(tensor_descriptor=object, store_wait=self.store_wait)}

    def compat(self, **more) -> ModuleType:
        api = {"aggregate": dataclass(frozen=True), "tma_load": self.tma_load, "tma_store": self.tma_store}
        return fake_module("host.device.triton_compat", api | more)


class Model(Partitions):
    """The fake Gluon API of Blackwell."""

    rings = 0

    def allocate(self, dtype, shape, layout) -> Buffer:
        if dtype == "barrier":
            self.rings += 1
            return Buffer([Barrier(f"barrier {self.rings}[{i}]") for i in range(shape[0])])
        slots, height, width = shape if len(shape) == 3 else (shape[0], 1, shape[1])
        cells = [[[math.nan] * width for _ in range(height)] for _ in range(slots)]
        return Buffer([Memory(self.machine, cell, 0, width, len(shape) - 1) for cell in cells])

    def tma_load(self, desc: Descriptor, at, barrier: Barrier, memory: Memory) -> None:
        who = self.machine.local.name

        def copy():
            memory.write(desc.read(at))
            barrier.copied(desc.block_type.nbytes, who)

        self.machine.pause()
        self.machine.loads.append(copy)

    def tma_store(self, desc: Descriptor, at, memory: Memory) -> None:
        self.machine.pause()
        self.machine.stores.append(lambda: desc.write(at, memory.read()))

    def store_wait(self, pending: int) -> None:
        stores = self.machine.stores
        self.machine.pause((lambda: len(stores) <= pending, f"at most {pending} TMA stores"))

    def mma(self, a: Memory, b: Memory, acc: Memory, use_acc=True, mbarriers=()) -> None:
        who = self.machine.local.name

        def multiply():
            columns = list(zip(*b.read(), strict=True))
            product = Tensor([[sum(map(mul, row, column)) for column in columns] for row in a.read()])
            acc.write((product + Tensor(acc.read()) if use_acc else product).rows)
            for barrier in mbarriers:
                barrier.arrive(who)

        self.machine.pause()
        self.machine.mmas.append(multiply)

    def commit(self, barrier: Barrier) -> None:
        who = self.machine.local.name
        self.machine.mmas.append(lambda: barrier.arrive(who))

    def store_global(self, pointer: Pointer, value: Tensor, mask: Tensor | None = None) -> None:
        stored = mask.rows[0] if mask else [True] * len(value.rows[0])
        for offset, x, store in zip(pointer.offset.rows[0], value.rows[0], stored, strict=True):
            if store:
                pointer.memory[offset] = x

    def modules(self) -> dict[str, object]:
        """The modules that the kernel imports, by name: parts of triton, triton_compat, layouts and packed_f32x2."""
        language = self.gluon(
            where=lambda c, a, b: elementwise(lambda c, a, b: a if c else b, c, a, b),
            maximum=lambda a, b: elementwise(max, a, b),
            minimum=lambda a, b: elementwise(min, a, b),
            exp2=lambda x: elementwise(exp2, x),
            log2=lambda x: elementwise(log2, x),
            arange=lambda start, stop, layout=None: Tensor([list(range(start, stop))], 1),
            full=lambda shape, value, dtype, layout: Tensor([[value] * shape[0]], 1),
            max=lambda x, axis: reduce_rows(x, max),
            sum=lambda x, axis: reduce_rows(x, lambda a, b: a + b),
            reduce=lambda x, axis, combine: reduce_rows(x, combine),
            convert_layout=lambda x, layout, assert_trivial=False: x,
            store=self.store_global,
        )
        blackwell = self.copies() | {
            "allocate_tensor_memory": self.allocate,
            "fence_async_shared": lambda: None,
            "tcgen05_commit": self.commit,
            "tcgen05_mma": self.mma,
            "tensor_memory_descriptor": object,
        }
        layouts = {"ROW_VECTOR": None, "tma_box": lambda memory, desc: memory}
        layouts |= dict.fromkeys(("matrix_layout", "one_per_row", "row_per_thread", "tmem_layout"), lambda *_: None)
        layouts["split_columns"] = lambda x, parts: tuple(
            x.columns(i * (x.shape[1] // parts), x.shape[1] // parts) for i in range(parts)
        )
        layouts["join_columns"] = lambda parts: Tensor(
            [list(chain(*rows)) for rows in zip(*(part.rows for part in parts), strict=True)]
        )
        packed = {
            "mul2": lambda a, b: a * b,
            "exp2_by_fma": lambda x, degree: elementwise(lambda x: exp2(max(x, -126.0)), x),
            "fma2": lambda a, b, c: a * b + c,
            "pair": lambda a, b: elementwise(complex, a, b),
            "unpair": lambda x: (elementwise(lambda z: z.real, x), elementwise(lambda z: z.imag, x)),
            "add_pairs": lambda a, b: a + b,
            "fma_pairs": lambda a, b, c: elementwise(
                lambda a, b, c: complex(a.real * b.real + c.real, a.imag * b.imag + c.imag), a, b, c
            ),
        }
        experimental = "triton.experimental.gluon.language.nvidia.blackwell"
        return language | {
            experimental: fake_module(experimental, blackwell),
            "host.device.triton_compat": self.compat(memory_view=lambda memory, dtype, shape, layout: memory),
            "host.device.layouts": fake_module("host.device.layouts", layouts),
            "host.device.packed_f32x2": fake_module("host.device.packed_f32x2", packed),
        }


def load_kernel(model: Model, edit: Edit = unchanged):
    """blackwell/kernel.py, its source passed through `edit`, running on `model`."""
    files = ("config.py", "blackwell/config.py", "device/pipeline.py", "blackwell/kernel.py")
    return load(files, model.modules(), edit)["blackwell/kernel.py"]


@dataclass(frozen=True)
class Problem:
    """The sizes of a run. They may be smaller than the kernel's: a tile may have 8 rows."""

    batch: int = 1
    num_heads: int = 2
    num_heads_kv: int = 2
    seqlen_q: int = 16
    seqlen_k: int = 16
    head_dim: int = 4
    block_m: int = 8
    block_n: int = 4
    stages: int = 2
    causal: str | None = None
    packed_row_sum: bool = False
    exp_turns: bool = False
    exp_bits: int = 0
    fma_parts: int = 1  # of two exp_parts
    round: Callable[[float], float] = exact  # rounds the probabilities

    @property
    def ragged(self) -> bool:
        return bool(self.seqlen_q % self.block_m or self.seqlen_k % self.block_n)

    @property
    def causal_offset(self) -> int:
        return self.seqlen_k - self.seqlen_q if self.causal == "bottom-right" else 0

    def keys_of(self, row: int) -> int:
        """How many keys the row sees."""
        return min(max(row + self.causal_offset + 1, 0), self.seqlen_k) if self.causal else self.seqlen_k


def run_attention(q, k, v, size: Problem, seed: int, programs: int, edit: Edit = unchanged):
    """Run the kernel's source on tensors [batch][head][row][column] of floats.

    Returns o, lse [batch * num_heads][row], and the PartitionArgs of each program. NaN: nothing was written.
    """
    rows, columns = size.block_m // 2, size.head_dim
    o = [[[[math.nan] * columns for _ in range(size.seqlen_q)] for _ in heads] for heads in q]
    lse = [math.nan] * (size.batch * size.num_heads * size.seqlen_q)
    dtype = SimpleNamespace(primitive_bitwidth=32, round=size.round)
    out = SimpleNamespace(primitive_bitwidth=32, round=exact)
    shared = []
    for program in range(programs):
        model = Model(seed + program, program, programs)
        kernel = load_kernel(model, edit)
        kernel.attention_kernel(
            1.0 / kernel.LOG2_E, Pointer(lse), size.batch * size.num_heads, size.num_heads,
            size.num_heads // size.num_heads_kv, size.seqlen_q, size.seqlen_k, size.causal_offset,
            Descriptor(q, [rows, columns], dtype), Descriptor(k, [size.block_n, columns], dtype),
            Descriptor(v, [size.block_n, columns], dtype), Descriptor(o, [rows, columns // 2], out),
            "name", size.block_m, size.block_n, columns, size.stages, size.causal is not None, size.ragged,
            size.packed_row_sum, 2, size.fma_parts, 3, size.exp_turns, size.exp_bits, 2, 192,
        )  # fmt: skip
        shared.append(model.shared)
    return o, [lse[i : i + size.seqlen_q] for i in range(0, len(lse), size.seqlen_q)], shared
