"""Is an attention right? Cases, a verdict for each, and wrong attentions that must be found. Torch, any device.

An attention is a function `attention(q, k, v, *, causal, scale, return_lse)` as in the kernel modules. Judged against
a float64 reference of the same inputs: no row may be more than twice as wrong as PyTorch's own attention in
that precision is at its worst, and lse must agree to 1e-3.
"""

from __future__ import annotations

import importlib
import itertools
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .config import CAUSAL
from .reference import TORCH_NAMES, attention_reference, low_precision, visible_keys

LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 1024, 4096)
GROUPS = (1, 4, 8)
# Half a unit in the last place, relative to the row's largest value: nobody rounds better.
ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp8e4nv": 2.0**-8, "fp8e5": 2.0**-8}
FP8 = ("fp8e4nv", "fp8e5")
TIMES_WORSE = 2.0
LSE_TOLERANCE = 1e-3
FLOAT32_STEP = 2.0**-23
# What a kernel's tensor cores may lose of a sum of fp8 products, relative to the largest: wgmma keeps about 13 bits.
# mma.sync on sm_90 has no such loss: ptxas converts fp8 to fp16 there.
FP8_LOSS = {"attention_hopper": 2.0**-12}

Attention = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of one call. `logits`: about the largest absolute score, None for standard normal inputs.

    `rising`: how much longer the first key is than the last. Maxima rise as a kernel goes on from there.
    `negative`: all scores are.
    """

    queries: int
    keys: int
    head_dim: int = 64
    dtype: str = "bf16"
    causal: str | None = None
    batch: int = 1
    kv_heads: int = 1
    group: int = 1
    logits: float | None = None
    rising: float = 1.0
    negative: bool = False
    layout: str = "bhsd"

    def inputs(self, seed: int, device: str):
        """Fresh random q, k, v; `layout` "bshd" makes heads the second innermost dimension of the memory."""
        import torch

        random = torch.Generator(device).manual_seed(seed)
        # Scores of standard normal inputs are standard normal once scaled; the largest of many is about 4.
        spread = 1.0 if self.logits is None else math.sqrt(self.logits / 4)

        def make(heads: int, length: int, spread: float, rising: float = 1.0, sign: int = 0):
            shape = (self.batch, heads, length, self.head_dim)
            if self.layout == "bshd":
                shape = (self.batch, length, heads, self.head_dim)
            x = torch.randn(shape, generator=random, device=device).mul_(spread)
            if sign:
                x = x.abs_().mul_(sign)
            if rising != 1.0:
                longer = torch.linspace(rising, 1.0, length, device=device)
                x *= longer[:, None, None] if self.layout == "bshd" else longer[:, None]
            x = x.to(getattr(torch, TORCH_NAMES[self.dtype]))
            return x.transpose(1, 2) if self.layout == "bshd" else x

        return (
            make(self.kv_heads * self.group, self.queries, spread, sign=int(self.negative)),
            make(self.kv_heads, self.keys, spread, self.rising, sign=-int(self.negative)),
            make(self.kv_heads, self.keys, 1.0),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case. `reason`: None if right; `skipped`: the sentence with which the kernel declined."""

    case: Case
    error: float | None = None
    allowed: float | None = None
    lse_error: float | None = None
    reason: str | None = None
    skipped: str | None = None

    @property
    def right(self) -> bool:
        return self.reason is None and self.skipped is None


def matrix(dtypes: tuple[str, ...], head_dims: tuple[int, ...], quick: bool = False) -> Iterator[Case]:
    """Every pair of lengths with every mask; groups, batches and layouts in turn. Then large logits, lengths of 0."""
    lengths = (1, 17, 64, 129, 1000) if quick else LENGTHS
    turn = itertools.cycle(itertools.product((1, 2), GROUPS, ("bhsd", "bshd")))
    for dtype, head_dim in itertools.product(dtypes, head_dims):
        for queries, keys, causal in itertools.product(lengths, lengths, CAUSAL):
            batch, group, layout = next(turn)
            few = {"batch": 1, "kv_heads": 1} if queries * keys > 2**22 else {"batch": batch, "kv_heads": 2}
            yield Case(queries, keys, head_dim, dtype, causal, group=group, layout=layout, **few)
        # Sums of many small numbers, which tensor cores of few bits lose.
        yield Case(256, 16384, head_dim, dtype, "bottom-right")
        # At 50 the maximum still moves now and then behind the first keys, at 10,000 one key takes all.
        for causal, group, logits in itertools.product(CAUSAL, GROUPS, (50.0, 1e4)):
            yield Case(300, 333, head_dim, dtype, causal, 2, 2, group, logits=logits)
        for queries, keys, causal in itertools.product((0, 17), (0, 64), CAUSAL):
            if queries * keys == 0:
                yield Case(queries, keys, head_dim, dtype, causal, kv_heads=2, group=4)
        for causal in CAUSAL:
            yield Case(300, 1000, head_dim, dtype, causal, 2, 2, 4, rising=6.0)
        yield from _negative(dtype, head_dim)


def _negative(dtype: str, head_dim: int) -> Iterator[Case]:
    """Scores that differ by more bits than an exponent has. Not of fp8: wgmma loses more of such sums."""
    if dtype not in FP8:
        for queries, causal in itertools.product((300, 4096), CAUSAL):
            yield Case(queries, 333, head_dim, dtype, causal, logits=2500.0, negative=True)


def judge(case: Case, attention: Attention, seed: int, device: str = "cuda", fp8_loss: float = 0.0) -> Verdict:
    """Run `attention` on fresh inputs, its memory poisoned before, and compare. `fp8_loss`: see FP8_LOSS."""
    if fp8_loss and case.dtype in FP8 and case.logits is not None:
        scores = f"scores of {case.logits:,.0f} from fp8 are known to {fp8_loss * case.logits:.2g} on this GPU's tensor"
        return Verdict(case, skipped=f"{scores} cores at best: what comes of them is no matter of the kernel")
    q, k, v = case.inputs(seed, device)
    try:
        with poisoned_memory():
            o, lse = attention(q, k, v, causal=case.causal, return_lse=True)
            alone = attention(q, k, v, causal=case.causal)  # may be another program
    except (TypeError, ValueError) as error:
        return Verdict(case, skipped=str(error))
    shapes = [tuple(x.shape) for x in (o, alone, lse)]
    if shapes != [tuple(q.shape), tuple(q.shape), tuple(q.shape[:3])]:
        return Verdict(case, reason=f"shapes of o, o without lse, lse: {shapes} for q {tuple(q.shape)}")
    exact, exact_lse = attention_reference(q, k, v, causal=case.causal)
    blind = visible_keys(case.queries, case.keys, case.causal, device) == 0
    spare = _spare(case, q, k, v)
    errors = [_worst_row(x, exact, blind, spare) for x in (o, alone)]
    error = math.nan if any(map(math.isnan, errors)) else max(errors)
    torchs = 0.0 if bool(blind.all()) else _worst_row(low_precision(q, k, v, causal=case.causal), exact, blind)
    allowed = max(TIMES_WORSE * torchs, ROUNDING[case.dtype])
    lse_error = _lse_error(lse, exact_lse, blind, _lse_slack(case, q, k, exact_lse[:, :, ~blind], fp8_loss))
    verdict = Verdict(case, error, allowed, lse_error)
    zeros = all(bool((x[:, :, blind] == 0).all()) for x in (o, alone))
    if not (zeros and bool((lse[:, :, blind] == -math.inf).all())):
        return replace(verdict, reason="a query that sees no key must give 0 and -inf")
    if not error <= allowed:  # also for NaN
        return replace(verdict, reason=f"a row is wrong by {error:.2e} of its largest value, {allowed:.2e} allowed")
    if not lse_error <= LSE_TOLERANCE:
        return replace(verdict, reason=f"lse is wrong by {lse_error:.2e}, {LSE_TOLERANCE:.0e} allowed")
    return verdict


def _spare(case: Case, q, k, v):
    """Where few keys take all: what rounding their probabilities can cost each row.

    PyTorch's largest probability is 1, which rounds to itself. Who scales by an earlier maximum has it rounded.
    """
    if case.logits is None:
        return 0.0
    return ROUNDING[case.dtype] * attention_reference(q, k, v.abs(), causal=case.causal)[0].amax(-1)


def _worst_row(o, exact, blind, spare=0.0) -> float:
    """Largest error beyond `spare`, relative to the largest value of its row; NaN if there is any."""
    if bool(blind.all()):
        return 0.0
    size = exact.abs().amax(-1).clamp_min(1e-30)
    errors = (((o.double() - exact).abs().amax(-1) - spare) / size)[:, :, ~blind]
    return _largest(errors)


def _lse_slack(case: Case, q, k, exact, fp8_loss: float):
    """What the GPU cannot say of lse: float32 sums, 16 products a step, each step cut off; sums of fp8 products."""
    if fp8_loss and case.dtype in FP8 and q.numel() and k.numel():
        longest = [x.float().norm(dim=-1).amax() for x in (q, k)]
        return float(fp8_loss * longest[0] * longest[1] * case.head_dim**-0.5)
    return (4 + case.head_dim / 16) * FLOAT32_STEP * exact.abs()


def _lse_error(lse, exact, blind, slack) -> float:
    """The largest beyond `slack`."""
    if bool(blind.all()):
        return 0.0
    error = (lse[:, :, ~blind].double() - exact[:, :, ~blind]).abs() - slack
    return _largest(error)


def _largest(errors) -> float:
    """At least 0; NaN if there is any."""
    largest = float(errors.max())
    return largest if math.isnan(largest) else max(0.0, largest)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Tensors made by torch.empty are full of NaN inside: what a kernel does not write is found."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


# --- wrong attentions


def right(q, k, v, *, causal=None, scale=None, return_lse=False, visible=None):
    """An attention that passes: the reference, rounded."""
    import torch

    o, lse = attention_reference(q, k, v, causal=causal, scale=scale, visible=visible)
    out = o.to(q.dtype if q.element_size() > 1 else torch.bfloat16)
    return (out, lse.float()) if return_lse else out


def _dropped_tile(q, k, v, *, causal=None, **options):
    """The keys behind the last whole tile of 64 are forgotten."""
    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device).clamp(max=k.shape[2] // 64 * 64)
    return right(q, k, v, visible=visible, **options)


def _mask_off_by_one(q, k, v, *, causal=None, **options):
    """A causal query sees one key too many; without a mask the last key is not seen."""
    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    off = visible - 1 if causal is None else (visible + 1).clamp(max=k.shape[2])
    return right(q, k, v, visible=off, **options)


def _swapped_heads(q, k, v, **options):
    """Queries meet the keys and values of another head."""
    return right(q, k.flip(1), v.flip(1), **options)


def _swapped_groups(q, k, v, **options):
    """Query head h takes K/V head h % kv_heads instead of h // group."""
    import torch

    own = torch.arange(q.shape[1], device=q.device) % k.shape[1]
    return right(q, k[:, own], v[:, own], **options)


def _zero_output(q, k, v, *, return_lse=False, **options):
    o, lse = right(q, k, v, return_lse=True, **options)
    return (o.zero_(), lse) if return_lse else o.zero_()


def _unwritten_row(q, k, v, *, return_lse=False, **options):
    """The last row of each head keeps what was in memory."""
    import torch

    o, lse = right(q, k, v, return_lse=True, **options)
    o[:, :, -1] = torch.empty_like(o[:, :, -1])
    return (o, lse) if return_lse else o


def _lse_in_bits(q, k, v, *, return_lse=False, **options):
    o, lse = right(q, k, v, return_lse=True, **options)
    return (o, lse / math.log(2)) if return_lse else o


def _nan_where_blind(q, k, v, *, causal=None, return_lse=False, **options):
    """A query that sees no key divides 0 by 0."""
    o, lse = right(q, k, v, causal=causal, return_lse=True, **options)
    o[lse == -math.inf] = math.nan
    return (o, lse) if return_lse else o


MUTATIONS: dict[str, Attention] = {
    "dropped tile": _dropped_tile,
    "mask off by one": _mask_off_by_one,
    "swapped heads": _swapped_heads,
    "swapped groups": _swapped_groups,
    "zero output": _zero_output,
    "unwritten row": _unwritten_row,
    "lse in bits": _lse_in_bits,
    "NaN where no key is seen": _nan_where_blind,
}

# Kernels that are wrong by one edit of their source: module -> what is wrong -> (text, its replacement).
KERNEL_MUTATIONS: dict[str, dict[str, tuple[str, str]]] = {
    "attention_hopper": {
        "mask off by one": ("8 * group + i < limit", "8 * group + i <= limit"),
        "dropped tile": ("(seen + self.block_n - 1) // self.block_n", "seen // self.block_n"),
        "swapped groups": (
            "head % self.heads // self.heads_per_kv",
            "head % self.heads % (self.heads // self.heads_per_kv)",
        ),
        # or the largest of negative scores, compared as integers
        "a guess that was too small is kept": ("if get_flag(me) != 0:", "if get_flag(me) > 1:"),
    },
    "attention_mma": {
        "mask off by one": ("column[None, :] < limit[:, None]", "column[None, :] <= limit[:, None]"),
        "dropped tile": ("range(steady, blocks)", "range(steady, blocks - 1)"),
        "swapped groups": ("shared = own // group", "shared = own % (heads // group)"),
        "sum not scaled to the new maximum": (
            "total * gl.convert_layout(shrink",
            "total + 0 * gl.convert_layout(shrink",
        ),
    },
}

# More of them, in what only fp8 takes.
FP8_KERNEL_MUTATIONS: dict[str, dict[str, tuple[str, str]]] = {
    "attention_hopper": {
        "keys of V out of order": (
            "prmt.b32 $0, $2, $3, 0x6420; prmt.b32 $1, $2, $3, 0x7531;",
            "prmt.b32 $0, $2, $3, 0x6240; prmt.b32 $1, $2, $3, 0x7351;",
        ),
        "columns of O out of order": ("permute(0, 1, 3, 2).reshape([ROWS", "permute(0, 1, 2, 3).reshape([ROWS"),
        "exponentials of other numbers": (
            "PER_STEP = gl.constexpr(1 / STEPS)",
            "PER_STEP = gl.constexpr(0.99 / STEPS)",
        ),
        "codes of other numbers": ("p.score_scale * p.code_scale,", "p.score_scale * p.code_scale * 0.9,"),
        "sums of codes forgotten": ("shrunk(plus(row_sum, sums), shrink)", "shrunk(row_sum, shrink)"),
    },
}


@contextmanager
def mutated(module: str, text: str, replacement: str) -> Iterator[Any]:
    """The kernel module with its source edited: imported from a copy of this package, under another name."""
    home = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"gluon_mutant_{abs(hash((module, text, replacement))):x}"
        shutil.copytree(home, copy, ignore=shutil.ignore_patterns("__pycache__"))
        source = copy / f"{module}.py"
        before = source.read_text()
        if text not in before:
            raise ValueError(f"{module}.py has no {text!r}: this mutation must follow the kernel")
        source.write_text(before.replace(text, replacement))
        sys.path.insert(0, folder)
        try:
            importlib.invalidate_caches()
            yield importlib.import_module(f"{copy.name}.{module}")
        finally:
            sys.path.remove(folder)
            for name in [name for name in sys.modules if name.partition(".")[0] == copy.name]:
                del sys.modules[name]


def mutation_cases(dtype: str, head_dim: int) -> list[Case]:
    """Few cases of which every wrong attention must fail one."""
    lengths = [(300, 333), (129, 1000), (200, 64)]
    cases = [Case(q, k, head_dim, dtype, causal, 1, 2, 4) for q, k in lengths for causal in CAUSAL]
    if dtype in FP8:  # for guessed maxima
        cases += [Case(300, 1000, head_dim, dtype, causal, 2, 2, 4, rising=6.0) for causal in CAUSAL]
    cases += [Case(256, 16384, head_dim, dtype, "bottom-right")]
    return cases + list(_negative(dtype, head_dim))


# --- all of it


@dataclass(frozen=True, slots=True)
class Found:
    """Whether a wrong attention was found; `verdict`: the first that says so, None if all cases passed."""

    mutation: str
    verdict: Verdict | None


def run(attention: Attention, cases: Iterator[Case], device: str = "cuda", fp8_loss: float = 0.0) -> Iterator[Verdict]:
    """A verdict for each case, inputs fresh for each; an error inside the kernel is a verdict too."""
    import torch

    for seed, case in enumerate(cases):
        try:
            yield judge(case, attention, seed, device, fp8_loss)
        except Exception as error:  # a compiler's or a launch's: the case is wrong, the others still count
            yield Verdict(case, reason=f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}")
            if "CUDA error" in str(error):
                torch.cuda.synchronize()  # raises again: nothing on this device can be trusted any more


def run_mutations(module: str, dtype: str = "bf16", head_dim: int = 64, device: str = "cuda") -> Iterator[Found]:
    """Wrong references, then wrong forms of the kernel `module`: each must be found."""
    cases = mutation_cases(dtype, head_dim)
    for name, attention in MUTATIONS.items():
        yield Found(name, _first_wrong(attention, cases, device))
    edits = KERNEL_MUTATIONS.get(module, {}) | (FP8_KERNEL_MUTATIONS.get(module, {}) if dtype in FP8 else {})
    for name, (text, replacement) in edits.items():
        with mutated(module, text, replacement) as wrong:
            yield Found(f"{module}: {name}", _first_wrong(wrong.attention, cases, device))


def _first_wrong(attention: Attention, cases: list[Case], device: str) -> Verdict | None:
    return next((verdict for verdict in run(attention, iter(cases), device) if verdict.reason), None)
