"""Run the partitions of the Hopper attention on the CPU: who waits for whom, and what shared memory holds meanwhile.

It executes device/pipeline.py and the files of hopper/, with `triton` replaced, on the machine of blackwell_model:
partitions that are not blocked go on in random order, and copies and MMAs complete after any delay. Numbers are not
modelled. Scores are the name of their key block, O is the list of the blocks that went into it, and a slot knows who
still reads it.
"""

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

from tests.gluon_kernels.support.blackwell_model import Barrier, Partitions, ProtocolError
from tests.gluon_kernels.support.kernel_source import Edit, decorator, fake_module, load, unchanged

# Each file after those that it imports.
FILES = (
    "config.py",
    "hopper/config.py",
    "device/pipeline.py",
    "hopper/layouts.py",
    "hopper/barriers.py",
    "hopper/operands.py",
    "hopper/softmax.py",
    "hopper/own_sums.py",
    "hopper/kernel.py",
)


@dataclass
class NamedBarrier:
    """A barrier of bar.sync and bar.arrive. A round is complete when so many warpgroups have come, each once."""

    came: set[str] = field(default_factory=set)
    rounds: int = 0


@dataclass
class Slot:
    """A tile of shared memory: what it holds, and how many operations read it."""

    label: str
    holds: tuple | None = None
    readers: int = 0
    unfenced: set | None = None  # the labels of slots that were stored to and not fenced yet

    def reshape(self, shape) -> "Slot":
        return self

    def permute(self, order) -> "Slot":
        return self

    def load(self, layout) -> tuple | None:
        return self.holds

    def store(self, value) -> None:
        if self.readers:
            raise ProtocolError(f"{self.label} is written while it is read")
        self.holds = value
        if self.unfenced is not None:
            self.unfenced.add(self.label)


class Slots(list):
    dtype = None

    def index(self, slot: int):
        return self[slot]


class Sum(tuple):
    """Scores of some columns."""

    def __add__(self, more):
        if more != self:
            raise ProtocolError(f"{self} and {more} are added up")
        return self


@dataclass
class Token:
    """An asynchronous MMA. `result` may be used once it is done."""

    result: object
    done: bool = False


@dataclass(frozen=True)
class Blocks:
    """O of one tile: the key blocks that were added to it, in order."""

    head: tuple
    names: tuple = ()

    def to(self, dtype) -> tuple:
        return ("o", self.head, self.names)


@dataclass(frozen=True)
class Problem:
    """The options and the sizes of a run."""

    consumers: int = 2
    stages: int = 2
    turns: bool = False
    shared_out: bool = False
    causal: bool = False
    uneven: bool = False
    keep_q: bool = False
    widen_v: bool = False
    q_early: bool = False
    own_sums: int = 1
    batch: int = 1
    num_heads: int = 4
    qheads_per_kvhead: int = 2
    seqlen_q: int = 300
    seqlen_k: int = 500
    causal_offset: int = 0
    order: tuple = ()


class Model(Partitions):
    """The fake Gluon API of Hopper."""

    def __init__(self, seed: int, program: int, programs: int, written: dict):
        super().__init__(seed, program, programs)
        self.written = written
        self.named: dict[int, NamedBarrier] = {}
        self.issued: dict[str, list[Token]] = {}
        self.stores: dict[str, list] = {}
        self.slots = 0
        # Stores of the partition that has the baton: no other one runs between its store and its fence.
        self.unfenced: set[str] = set()

    # shared memory and barriers

    def allocate(self, dtype, shape, layout) -> Slots:
        self.slots += 1
        if dtype == "barrier":
            return Slots(Barrier(f"barrier {self.slots}[{i}]") for i in range(shape[0]))
        return Slots(Slot(f"slot {self.slots}[{i}]", unfenced=self.unfenced) for i in range(shape[0]))

    def fence(self) -> None:
        self.unfenced.clear()

    def check_fenced(self) -> None:
        if self.unfenced:
            raise ProtocolError(f"{self.unfenced} go to asynchronous readers without a fence")

    def arrive(self, barrier, count: int = 1) -> None:
        self.check_fenced()
        super().arrive(barrier)

    def named_barrier(self, instruction: str, number: int, warpgroups: int) -> None:
        self.machine.pause()
        barrier, name = self.named.setdefault(number, NamedBarrier()), self.machine.local.name
        if number > 15 or name in barrier.came:
            raise ProtocolError(f"named barrier {number}: {name} comes twice in one round")
        barrier.came.add(name)
        awaited = barrier.rounds + 1
        if len(barrier.came) == warpgroups:
            barrier.came, barrier.rounds = set(), awaited
        if instruction == "bar.sync":
            self.machine.pause((lambda: barrier.rounds >= awaited, f"named barrier {number}"))

    # copies

    def tma_load(self, desc, at, barrier, slot: Slot) -> None:
        if slot.readers:
            raise ProtocolError(f"{slot.label}: {desc.name} is loaded while the slot is read")
        slot.holds, who = None, self.machine.local.name

        def copy():
            slot.holds = (desc.name, *at)
            barrier.copied(desc.block_type.nbytes, who)

        self.machine.pause()
        self.machine.loads.append(copy)

    def tma_store(self, desc, at, slot: Slot) -> None:
        self.check_fenced()
        token = Token(None)
        slot.readers += 1

        def copy():
            slot.readers -= 1
            token.done = True
            if tuple(at) in self.written:
                raise ProtocolError(f"rows {at} of O are written twice")
            self.written[tuple(at)] = slot.holds

        self.machine.pause()
        self.stores.setdefault(self.machine.local.name, []).append(token)
        self.machine.stores.append(copy)

    def store_wait(self, pending: int) -> None:
        mine = self.stores.get(self.machine.local.name, [])
        self.machine.pause((lambda: sum(not t.done for t in mine) <= pending, f"at most {pending} TMA stores"))

    # MMAs

    def issue(self, slots: list[Slot], result) -> Token:
        token, held = Token(result), [slot.holds for slot in slots]
        for slot in slots:
            slot.readers += 1

        def complete():
            if [slot.holds for slot in slots] != held:
                raise ProtocolError(f"{[slot.label for slot in slots]} changed under an MMA")
            for slot in slots:
                slot.readers -= 1
            token.done = True

        self.machine.pause()
        self.issued.setdefault(self.machine.local.name, []).append(token)
        self.machine.mmas.append(complete)
        return token

    def mma_wait(self, outstanding: int, deps):
        mine = self.issued.setdefault(self.machine.local.name, [])
        self.machine.pause((lambda: sum(not t.done for t in mine) <= outstanding, f"at most {outstanding} MMAs"))
        if any(isinstance(dep, Token) and not dep.done for dep in deps):
            raise ProtocolError("the result of an MMA is used before it is waited for")
        results = tuple(dep.result if isinstance(dep, Token) else dep for dep in deps)
        return results[0] if len(results) == 1 else results

    def warp_specialize(self, functions, warps, registers) -> None:
        self.check_fenced()
        super().warp_specialize(functions, warps, registers)
        if any(barrier.came for barrier in self.named.values()):
            raise ProtocolError("the kernel ends with a named barrier half full")

    def modules(self) -> dict[str, object]:
        gluon = self.gluon(
            float16="fp16", NVMMASharedLayout=SimpleNamespace(get_default_for=lambda *_: None), load=lambda at: at(),
            minimum=min, maximum=max, arange=lambda *_: 0, full=lambda *_: None, zeros=lambda *_: None,
            where=lambda c, a, b: a if c else b,
        )  # fmt: skip
        triton = fake_module("triton", {"jit": decorator})
        hopper = self.copies() | {
            "fence_async_shared": self.fence,
            "warpgroup_mma": None,
            "warpgroup_mma_wait": lambda outstanding, deps: self.mma_wait(outstanding, deps),
        }
        nvidia = "triton.experimental.gluon.language.nvidia."
        return gluon | {
            "triton": triton,
            "triton.language": fake_module("triton.language", {"constexpr": object}),
            f"{nvidia}hopper": fake_module(f"{nvidia}hopper", hopper),
            f"{nvidia}blackwell": fake_module(f"{nvidia}blackwell", hopper),
            "host.device.triton_compat": self.compat(),
        }


class Pointer:
    def __init__(self, values, offset: int = 0):
        self.values, self.offset = values, offset

    def __add__(self, offset: int) -> "Pointer":
        return Pointer(self.values, self.offset + offset)

    def __call__(self):
        return self.values[self.offset]


def load_kernel(model: Model, size: Problem, edit: Edit) -> ModuleType:
    """hopper/kernel.py, its source passed through `edit`, with arithmetic replaced by the checks below."""
    modules = load(FILES, model.modules(), edit)
    module = modules["hopper/kernel.py"]

    def scores_mma(p, q, slot):
        k = p.k_smem.index(slot)
        name, read = (q.holds, [q, k]) if isinstance(q, Slot) else (q, [k])
        if name is None or k.holds is None:
            raise ProtocolError(f"scores of {name} and {k.holds}: not there yet")
        return model.issue(read, ("scores", name, k.holds))

    def own_scores_mma(p, me, slot, part):
        q, k = p.q_smem.index(me), p.k_smem.index(slot)
        return model.issue([q, k], Sum(("scores", q.holds, k.holds)))

    def with_half(scores, half, own):
        if own != scores:
            raise ProtocolError(f"{scores} get a half of {own}")
        return scores

    def probs_of(p, scores, block):
        _, (_, batch, head, _, _), (_, kv_batch, kv_head, key, _) = scores
        if (kv_batch, kv_head, key) != (batch, head // p.qheads_per_kvhead, block * p.options.block_n):
            raise ProtocolError(f"scores of head {head} with {scores[2]} taken for block {block}")
        return ("probabilities", scores[1], block)

    def next_softmax(p, me, seen, o, row_max, row_sum):
        return o, probs_of(p, *seen), None, None

    def visible(p, scores, view, block):
        return scores, block

    def first_softmax(p, scores, view, block):
        return probs_of(p, scores, block), None, None

    def widen(narrow, wide):
        model.machine.pause()
        if narrow.holds is None:
            raise ProtocolError(f"{narrow.label} is widened before it is there")
        wide.store(narrow.holds)

    def values_mma(p, probs, slot, o):
        _, q, block = probs
        _, batch, head, row, _ = q
        v = p.v_smem.index(slot)
        if v.holds != ("v", batch, head // p.qheads_per_kvhead, block * p.options.block_n, 0):
            raise ProtocolError(f"block {block} of head {head} meets {v.holds}")
        o = o or Blocks((batch, head, row))
        return model.issue([v], Blocks(o.head, (*o.names, block)))

    def blocks_of(first_row):
        seen = min(size.seqlen_k, first_row + 64 + size.causal_offset) if size.causal else size.seqlen_k
        return max(1, -(-seen // 128)) if first_row < size.seqlen_q else 1

    def finish(p, me, tile, row, row_max, row_sum, o):
        first_row = tile.first_row + me * 64
        count = blocks_of(first_row) if p.options.uneven else tile.blocks
        order = [*reversed(range(count))]
        if p.options.own_first:
            own = min(max(tile.first_row + size.seqlen_k - size.seqlen_q, 0) // 128, count - 1)
            order = [block % count for block in range(own, own - count, -1)]
        if o != Blocks((tile.batch, tile.head, first_row), tuple(order)):
            raise ProtocolError(f"{o} instead of {count} blocks of {tile}")
        module.write_output(p, me, tile, o)

    replaced = {
        "scores_mma": scores_mma, "values_mma": values_mma, "own_scores_mma": own_scores_mma, "with_half": with_half,
        "first_softmax": first_softmax, "next_softmax": next_softmax,
        "visible": visible, "whole_blocks": lambda p, row: 0, "widen": widen,
        "named_barrier": model.named_barrier, "declare_flag": lambda me: None, "finish": finish,
        "mma_layout": lambda *_: None, "left_layout": lambda *_: None,
    }  # fmt: skip
    for name, function in replaced.items():
        users = [one for one in modules.values() if name in one.__dict__]
        assert users, name
        for one in users:
            one.__dict__[name] = function
    return module


OPTIONS = ["consumers", "stages", "turns", "shared_out", "causal", "uneven", "keep_q", "widen_v", "q_early", "own_sums"]


def options_of(size: Problem) -> SimpleNamespace:
    """The kernel's Options."""
    fields = {name: getattr(size, name) for name in OPTIONS} | {"own_first": size.own_sums > 1 and not size.causal}
    return SimpleNamespace(block_n=128, head_dim=64, ordered=size.causal or size.uneven, registers=240, **fields)


def run(size: Problem, seed: int, programs: int, edit: Edit = unchanged) -> dict[tuple, tuple]:
    """Run the kernel; return what was stored, by [batch, head, row, 0]. Raises ProtocolError."""
    written: dict[tuple, tuple] = {}
    for program in range(programs):
        kernel = load_kernel(Model(seed + program, program, programs, written), size, edit)

        def desc(name: str, rows: int):
            shape = [1, 1, rows, 64]
            dtype = SimpleNamespace(primitive_bitwidth=16)
            return SimpleNamespace(
                name=name, dtype=dtype, layout=None, block_shape=shape, block_type=SimpleNamespace(nbytes=rows)
            )

        kernel.attention_kernel(
            desc("q", 64), desc("k", 128), desc("v", 128), desc("o", 64),
            None, 0, 1.0, 1.0, 1.0, size.causal_offset, size.batch, size.num_heads, size.qheads_per_kvhead,
            size.seqlen_q, size.seqlen_k, Pointer(size.order), "name", options_of(size),
        )  # fmt: skip
    return written
