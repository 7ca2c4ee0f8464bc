"""Wrong attentions that `gluon_kernels.verify.check` must find: wrong references, and kernels with one edited line.

    python -m tests.gluon_kernels.mutations [--kernel KERNEL] [--dtype DTYPE] [--head-dim N]

runs all of them on a GPU, from a checkout, and exits with 0 (all found), 1 (some not found) or 2 (not run).
"""

from __future__ import annotations

import argparse
import importlib
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gluon_kernels
from gluon_kernels.config import CAUSAL
from gluon_kernels.verify.check import FP8, Attention, Case, Verdict, negative_cases, run
from gluon_kernels.verify.reference import attention_reference, visible_keys

# --- wrong references


def right(q, k, v, *, causal=None, scale=None, return_lse=False, visible=None):
    """An attention that passes: the reference, rounded."""
    import torch

    o, lse = attention_reference(q, k, v, causal=causal, scale=scale, visible=visible)
    out = o.to(q.dtype if q.element_size() > 1 else torch.bfloat16)
    return (out, lse.float()) if return_lse else out


def _dropped_tile(q, k, v, *, causal=None, **options):
    """Forget the keys behind the last whole tile of 64."""
    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device).clamp(max=k.shape[2] // 64 * 64)
    return right(q, k, v, visible=visible, **options)


def _mask_off_by_one(q, k, v, *, causal=None, **options):
    """Let a causal query see one key too many; without a mask hide the last key."""
    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    off = visible - 1 if causal is None else (visible + 1).clamp(max=k.shape[2])
    return right(q, k, v, visible=off, **options)


def _swapped_heads(q, k, v, **options):
    """Take the keys and values of another head."""
    return right(q, k.flip(1), v.flip(1), **options)


def _swapped_groups(q, k, v, **options):
    """Take K/V head h % num_heads_kv for query head h, instead of h // qheads_per_kvhead."""
    import torch

    own = torch.arange(q.shape[1], device=q.device) % k.shape[1]
    return right(q, k[:, own], v[:, own], **options)


def _zero_output(q, k, v, *, return_lse=False, **options):
    o, lse = right(q, k, v, return_lse=True, **options)
    return (o.zero_(), lse) if return_lse else o.zero_()


def _unwritten_row(q, k, v, *, return_lse=False, **options):
    """Leave in the last row of each head what was in memory."""
    import torch

    o, lse = right(q, k, v, return_lse=True, **options)
    o[:, :, -1] = torch.empty_like(o[:, :, -1])
    return (o, lse) if return_lse else o


def _lse_in_bits(q, k, v, *, return_lse=False, **options):
    o, lse = right(q, k, v, return_lse=True, **options)
    return (o, lse / math.log(2)) if return_lse else o


def _nan_where_blind(q, k, v, *, causal=None, return_lse=False, **options):
    """Divide 0 by 0 for a query that sees no key."""
    o, lse = right(q, k, v, causal=causal, return_lse=True, **options)
    o[lse == -math.inf] = math.nan
    return (o, lse) if return_lse else o


REFERENCES: dict[str, Attention] = {
    "dropped tile": _dropped_tile,
    "mask off by one": _mask_off_by_one,
    "swapped heads": _swapped_heads,
    "swapped groups": _swapped_groups,
    "zero output": _zero_output,
    "unwritten row": _unwritten_row,
    "lse in bits": _lse_in_bits,
    "NaN where no key is seen": _nan_where_blind,
}


# --- wrong kernels


@dataclass(frozen=True)
class Edit:
    """One edit of a kernel's source. `module`: in the kernel's subpackage; `fp8_only`: other dtypes do not run it."""

    kernel: str
    module: str
    name: str
    text: str
    replacement: str
    fp8_only: bool = False


EDITS = (
    Edit("hopper", "softmax", "mask off by one", "8 * group + i < limit", "8 * group + i <= limit"),
    Edit("hopper", "kernel", "dropped tile", "(seen + self.options.block_n - 1) // self.options.block_n",
         "seen // self.options.block_n"),
    Edit("hopper", "kernel", "swapped groups", "head % self.num_heads // self.qheads_per_kvhead",
         "head % self.num_heads % (self.num_heads // self.qheads_per_kvhead)"),
    Edit("hopper", "softmax", "a guess that was too small is kept", "if get_flag(me) != 0:", "if get_flag(me) > 1:"),
    Edit("hopper", "softmax", "half of the sums are lost", "add_halves(half_sums(even), half_sums(odd))",
         "half_sums(even)", fp8_only=True),
    Edit("hopper", "operands", "V widened into the wrong place", "wide.slice(i * keys, keys, 0)",
         "wide.slice(0, keys, 0)", fp8_only=True),
    Edit("mma", "kernel", "mask off by one", "column[None, :] < limit[:, None]", "column[None, :] <= limit[:, None]"),
    Edit("mma", "kernel", "dropped tile", "range(steady, blocks)", "range(steady, blocks - 1)"),
    Edit("mma", "kernel", "swapped groups", "kv_head_index = q_head_index // qheads_per_kvhead",
         "kv_head_index = q_head_index % (num_heads // qheads_per_kvhead)"),
    Edit("mma", "kernel", "sum not scaled to the new maximum", "row_sum * gl.convert_layout(shrink",
         "row_sum + 0 * gl.convert_layout(shrink"),
)  # fmt: skip


@contextmanager
def mutated(edit: Edit) -> Iterator[Any]:
    """The launch module of a kernel with an edited source: imported from a copy of the package, under another name.

    Raises ValueError if the source has no such text.
    """
    home = Path(gluon_kernels.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"gluon_mutant_{abs(hash(edit)):x}"
        shutil.copytree(home, copy, ignore=shutil.ignore_patterns("__pycache__"))
        source = copy / edit.kernel / f"{edit.module}.py"
        before = source.read_text()
        if edit.text not in before:
            raise ValueError(
                f"{edit.kernel}/{edit.module}.py has no {edit.text!r}: this mutation must follow the kernel"
            )
        source.write_text(before.replace(edit.text, edit.replacement))
        sys.path.insert(0, folder)
        try:
            importlib.invalidate_caches()
            yield importlib.import_module(f"{copy.name}.{edit.kernel}.launch")
        finally:
            sys.path.remove(folder)
            for name in [name for name in sys.modules if name.partition(".")[0] == copy.name]:
                del sys.modules[name]


# --- all of them


@dataclass(frozen=True)
class Found:
    """Whether a wrong attention was found. `verdict`: the first that found it, or None."""

    mutation: str
    verdict: Verdict | None


def cases_of(dtype: str, head_dim: int) -> list[Case]:
    """A few cases; every wrong attention must fail one of them."""
    lengths = [(300, 333), (129, 1000), (200, 64)]
    cases = [Case(q, k, head_dim, dtype, causal, 1, 2, 4) for q, k in lengths for causal in CAUSAL]
    if dtype in FP8:  # for guessed maxima
        cases += [Case(300, 1000, head_dim, dtype, causal, 2, 2, 4, rising=6.0) for causal in CAUSAL]
    cases += [Case(256, 16384, head_dim, dtype, "bottom-right")]
    return cases + list(negative_cases(dtype, head_dim))


def run_mutations(kernel: str, dtype: str = "bf16", head_dim: int = 64, device: str = "cuda") -> Iterator[Found]:
    """Judge the wrong references, then the wrong forms of a kernel."""
    cases = cases_of(dtype, head_dim)
    for name, attention in REFERENCES.items():
        yield Found(name, _first_wrong(attention, cases, device))
    for edit in EDITS:
        if edit.kernel == kernel and (dtype in FP8 or not edit.fp8_only):
            with mutated(edit) as wrong:
                yield Found(f"{kernel}: {edit.name}", _first_wrong(wrong.attention, cases, device))


def _first_wrong(attention: Attention, cases: list[Case], device: str) -> Verdict | None:
    return next((verdict for verdict in run(attention, cases, device) if verdict.reason), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gluon_kernels.mutations", description=__doc__.split("\n")[0])
    parser.add_argument("--kernel", choices=("mma", "hopper"), default="hopper")
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp8e4nv", "fp8e5"), default="bf16")
    parser.add_argument("--head-dim", type=int, default=64)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("needs an NVIDIA GPU that torch can use", file=sys.stderr)
        return 2
    missed = 0
    for found in run_mutations(options.kernel, options.dtype, options.head_dim):
        missed += found.verdict is None
        print(f"{found.mutation}: {'NOT FOUND' if found.verdict is None else found.verdict.reason}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
