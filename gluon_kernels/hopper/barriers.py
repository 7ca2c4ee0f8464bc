"""Named barriers of the Hopper attention, its consumers' turns to issue MMAs, and its flags per warp."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .config import WARPGROUP_THREADS

# Numbers of the first named barrier of each group. A CTA has 16; Triton uses 0, 1 and one for each consumer.
FIRST_EMPTY = gl.constexpr(5)
FIRST_TURN = gl.constexpr(13)


@gluon.jit
def named_barrier(instruction: gl.constexpr, number, warpgroups: gl.constexpr):
    """Emit bar.sync or bar.arrive for the named barrier `number`, in which `warpgroups` warpgroups take part."""
    asm: gl.constexpr = barrier_asm(instruction, warpgroups)
    gl.inline_asm_elementwise(asm, "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def barrier_asm(instruction, warpgroups):
    return f"{instruction} $1, {warpgroups * WARPGROUP_THREADS}; mov.u32 $0, 0;"


@gluon.jit
def await_empty(p, first: gl.constexpr, at, filled):
    """Wait until all consumers have handed back the slot. `first`: 0 for K, `stages` for V."""
    if filled >= p.options.stages:
        named_barrier("bar.sync", FIRST_EMPTY + first + at.slot, p.options.consumers + 1)


@gluon.jit
def hand_back(p, first: gl.constexpr, at):
    named_barrier("bar.arrive", FIRST_EMPTY + first + at.slot, p.options.consumers + 1)


@gluon.jit
def first_turn(p, me: gl.constexpr):
    """Give the first turn to consumer 0: the last consumer arrives at the barrier of consumer 0."""
    if p.options.turns and me == p.options.consumers - 1:
        named_barrier("bar.arrive", FIRST_TURN, 2)


@gluon.jit
def take_turn(p, me: gl.constexpr):
    if p.options.turns:
        named_barrier("bar.sync", FIRST_TURN + me, 2)


@gluon.jit
def pass_turn(p, me: gl.constexpr):
    if p.options.turns:
        named_barrier("bar.arrive", FIRST_TURN + (me + 1) % p.options.consumers, 2)


@gluon.jit
def last_turn(p, me: gl.constexpr):
    """Wait for the last arrival at consumer 0's barrier: a kernel must not end while a barrier is half complete."""
    if p.options.turns and me == 0:
        named_barrier("bar.sync", FIRST_TURN, 2)


@gluon.jit
def declare_flag(me: gl.constexpr):
    """Declare a PTX predicate that each warp sets on its own. A condition in Gluon would be equal for all warps."""
    asm: gl.constexpr = flag_asm(me, "declare")
    gl.inline_asm_elementwise(asm, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def flag_sums(me: gl.constexpr, x, most):
    """Set the warp's flag if an element of x is larger than its limit in `most`; each thread has two elements."""
    asm: gl.constexpr = flag_asm(me, "sums")
    gl.inline_asm_elementwise(asm, "=r,=r,r,r,r,r", [x, most], dtype=gl.int32, is_pure=False, pack=2)


@gluon.jit
def get_flag(me: gl.constexpr):
    """Return 1 if the flag of this warp is set, else 0."""
    asm: gl.constexpr = flag_asm(me, "get")
    return gl.inline_asm_elementwise(asm, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def flag_asm(me, action):
    flag = f"flag_{me}"
    if action == "declare":
        return f".reg .pred {flag}; mov.b32 $0, $1;"
    if action == "get":
        return f"selp.b32 $0, 1, 0, {flag}; // $1"
    test = "setp.gt.f32 p, $2, $4; setp.gt.or.f32 p, $3, $5, p;"
    vote = f"vote.sync.any.pred {flag}, p, 0xffffffff;"
    return f"{{ .reg .pred p; {test} {vote} mov.b32 $0, 0; mov.b32 $1, 0; }}"
