"""Wrong results, each with a mistake that a broken kernel could have. The judge must reject them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..config import FP8
from . import cases, inputs, judging
from .cases import Case
from .judging import Verdict

MUTATED = Case("mutation", 200, 330, heads=4, heads_kv=2, head_dim=128, mask="causal", layout="bshd")
LONG_SUM = next(case for case in cases.long_sums() if case.values == "mean")
MUTATED_FP8 = replace(MUTATED, dtype="e4m3", out_dtype="fp32")


def mutations(case: Case = MUTATED) -> dict[str, Callable[[], Verdict]]:
    """Map names of mistakes to functions. Each makes a wrong result, and judges it as if it were right."""
    import torch

    def judged(change: Callable[[dict[str, Any], dict[str, Any]], Any], of: Case = case) -> Callable[[], Verdict]:
        def verdict() -> Verdict:
            made, options = inputs.tensors(of)
            o, lse = change(made, options)
            return judging.judge(of, made, options, o, lse)

        return verdict

    def kernel(made: dict[str, Any], options: dict[str, Any], **changes: Any) -> Any:
        changed = {name: changes.get(name, tensor) for name, tensor in made.items()}
        return judging.run(case, changed, options | {n: v for n, v in changes.items() if n not in made})

    def rows(tensor: Any, which: list[int], axis: int = 1) -> Any:
        """Select rows. torch can index FP8 tensors only if they are viewed as bytes."""
        data = tensor.view(torch.uint8) if case.dtype in FP8 else tensor
        return data.index_select(axis, torch.tensor(which, device=data.device) % data.shape[axis]).view(tensor.dtype)

    def zeros(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        return torch.zeros_like(o), lse

    def dropped_tile(made: dict[str, Any], options: dict[str, Any]) -> Any:
        kept = [i for i in range(case.keys) if not 64 <= i < 128]
        return kernel(made, options, **{name: rows(made[name], kept) for name in ("k", "v")})

    def shifted(made: dict[str, Any], options: dict[str, Any]) -> Any:
        one_on = [i - 1 for i in range(case.keys)]
        return kernel(made, options, k=rows(made["k"], one_on), v=rows(made["v"], one_on))

    def swapped_heads(made: dict[str, Any], options: dict[str, Any]) -> Any:
        turned = list(reversed(range(case.heads_kv)))
        return kernel(made, options, k=rows(made["k"], turned, 2), v=rows(made["v"], turned, 2))

    def permuted(made: dict[str, Any], options: dict[str, Any]) -> Any:
        swapped = [{16: 17, 17: 16}.get(i, i) for i in range(case.keys)]
        return kernel(made, options, v=rows(made["v"], swapped))

    def wrong_lse(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        return o, lse * math.log2(math.e)

    def one_nan(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        o[1, 77, 3, 5] = math.nan
        return o, lse

    def lost_bits(made: dict[str, Any], options: dict[str, Any]) -> Any:
        """Make a sum smaller by 2^-14 for each MMA of 32 keys, as an accumulator of 13 bits would."""
        o, lse = kernel(made, options)
        return (o.float() * (1 - LONG_SUM.keys / 32 * 2**-14)).to(o.dtype), lse

    long = {"sums that keep 13 bits": judged(lost_bits, LONG_SUM)} if case.dtype in FP8 else {}
    return long | {
        "all zeros": judged(zeros),
        "a tile of keys dropped": judged(dropped_tile, replace(case, mask="none")),
        "key heads swapped": judged(swapped_heads),
        "two rows of V swapped": judged(permuted),
        "mask one key too wide": judged(lambda m, o: kernel(m, o, causal=False, window=(-1, 1))),
        "mask one key too narrow": judged(shifted),
        "the other alignment": judged(lambda m, o: kernel(m, o, align="top-left")),
        "scale 2 % off": judged(lambda m, o: kernel(m, o, scale=1.02 / math.sqrt(128))),
        "LSE in base 2": judged(wrong_lse),
        "one NaN": judged(one_nan),
    }
