"""FP8 kernels that are wrong on purpose, each by one mistake in its MMA policy. The judge must refuse their results.

They are compiled when they are needed, take the place of the right kernel for a while, and are not kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from sm120_attn.compile import cache
from sm120_attn.compile.compiler import HostFunction, compile_function
from sm120_attn.config import Config
from sm120_attn.verify import cases, inputs, judging
from sm120_attn.verify.wrong_results import MUTATED_FP8


def _turned_by_three(policy: Any, lane: Any) -> Any:
    odd = lane >> 4
    return (((lane & 7) + 3 * odd) & 7) + (odd << 3)


# What replaces a policy's method, or an attribute.
MISTAKES: dict[str, dict[str, Callable[..., Any] | int]] = {
    "V's rows in the order of the keys": {"v_row": lambda policy, lane: lane},
    "K turned by three rows": {"k_row": _turned_by_three},
    "masks not turned": {"key_offsets": lambda policy, lane: (2 * (lane & 3),)},
    "output rescaled by other rows' factors": {"lanes_of_queries": lambda policy, lane: (lane, lane)},
    "scale bytes of 126": {"scales": 0x7E7E7E7E},
}


def mistakes_of(policy: Any) -> list[str]:
    """The mistakes that a policy can make: only the block-scaled MMA has scales."""
    return [name for name, changes in MISTAKES.items() if "scales" not in changes or policy.scales is not None]


def broken(policy: Any, mistake: str) -> Any:
    """Make a policy make this mistake from now on."""
    for name, changed in MISTAKES[mistake].items():
        setattr(policy, name, partial(changed, policy) if callable(changed) else changed)
    return policy


def compiled_with(config: Config, mistake: str) -> HostFunction:
    """Compile the kernel of a config with a mistake in its policy."""
    from sm120_attn.kernels import attention
    from sm120_attn.kernels.attention import policy_of

    with mock.patch.object(attention, "policy_of", lambda config: broken(policy_of(config), mistake)):
        return compile_function(config)


@contextmanager
def in_place_of(config: Config, mistake: str) -> Iterator[None]:
    """Make calls that would run this kernel run one with the mistake."""
    from sm120_attn.launch.prepare import prepared_calls

    made = compiled_with(config, mistake)
    wrong = cache.loaded(config, made.slots, made.ptxas, False, made.function)
    with mock.patch.dict(cache._compiled, {config: wrong}), mock.patch.dict(prepared_calls, clear=True):
        yield


def broken_kernels() -> dict[str, Callable[[], judging.Verdict]]:
    """Functions by mistake: each runs a kernel with the mistake, on a GPU, and judges the result."""
    from sm120_attn.kernels.attention import policy_of
    from sm120_attn.launch.prepare import device_facts

    case = replace(MUTATED_FP8, kernel=cases.FP8_TILES[0])
    config = case.config(*device_facts(0))

    def verdict(mistake: str) -> judging.Verdict:
        made, options = inputs.tensors(case)
        with in_place_of(config, mistake):
            return judging.judge(case, made, options, *judging.run(case, made, options))

    return {name: partial(verdict, name) for name in mistakes_of(policy_of(config))}
