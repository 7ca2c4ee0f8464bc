"""Which template or library torch.compile takes for a matrix product, a convolution or an attention (max-autotune).

Inductor asks its AlgorithmSelectorCache with all choices at once. What it took is reported; where a policy pins one, it
is given that choice alone, which it takes without compiling or measuring the others. With `benchmark_epilogue_fusion`,
which is the default, the choice is open until the scheduler has tried fusions: then the winner is known after
`finalize_multi_template_buffers`. A pinned template is fused with what follows it wherever that can be done, without
measuring.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.patching import Patch
from tritonhook.capture.policy.model import Policy, stem

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer


SELECTING, SCHEDULING = "torch._inductor.select_algorithm", "torch._inductor.scheduler"
INPUT = "input="  # how the first part of a key begins
_ASKED = "tritonhook_asked"  # at a buffer whose choice is open: what was asked
Sessions = Callable[[], Sequence["Observer"]]
Asked = tuple[str, str, tuple[str, ...]]  # the operation, the architecture, the key


def patch_selection(module: Any, sessions: Sessions) -> list[Patch]:
    """Report and pin the choices of Inductor's AlgorithmSelectorCache."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def select(cache: Any, name: str, choices: Any, input_nodes: Any, layout: Any, *rest: Any, **named: Any) -> Any:
            asked: Asked | None = None
            given = choices
            try:
                if sessions() and len(choices) > 1 and layout.device.type == "cuda":
                    asked = name, _arch(), _key(cache, input_nodes, layout)
                    given = _pinned(sessions(), asked, cache, choices) or choices
            except Exception as error:
                _contain(sessions(), "the choice of a template of torch.compile is not pinned", error)
            result = original(cache, name, given, input_nodes, layout, *rest, **named)
            if asked is not None and given is choices:
                try:
                    _selected(sessions(), asked, choices, *result)
                except Exception as error:
                    _contain(sessions(), "the choice of a template of torch.compile is not known", error)
            return result

        return select

    return [Patch(module.AlgorithmSelectorCache, "__call__", wrap)]


def patch_scheduling(module: Any, sessions: Sessions) -> list[Patch]:
    """Report the choices that were open until the scheduler had tried fusions."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def finalize(scheduler: Any) -> None:
            nodes = [inner.node for node in scheduler.nodes for inner in node.get_nodes()]
            original(scheduler)
            for buffer in nodes:
                if (asked := getattr(buffer, _ASKED, None)) is not None:
                    try:
                        _report(sessions(), asked, _final(buffer), buffer.choices)
                    except Exception as error:
                        _contain(sessions(), "the choice of a template of torch.compile is not known", error)

        return finalize

    return [Patch(module.Scheduler, "finalize_multi_template_buffers", wrap)]


def _contain(sessions: Sequence[Observer], doing: str, error: Exception) -> None:
    for session in sessions:
        session.contain(doing, error)


# --- what is asked, and what is chosen ------------------------------------------------------------


def _arch() -> str:
    from triton.runtime import driver

    from tritonhook.capture.triton.metadata import arch_name

    return arch_name(driver.active.get_current_target().arch)


def _key(cache: Any, input_nodes: Iterable[Any], layout: Any) -> tuple[str, ...]:
    """What Inductor's own cache of measurements goes by, and the type of the output."""
    import torch

    inputs = (INPUT + " ".join(map(str, cache.key_of(node))) for node in input_nodes)
    output = str(getattr(layout, "dtype", ""))
    return (*inputs, f"output={output}", f"precision={torch.get_float32_matmul_precision()}")


def choice_text(choice: Any) -> str:
    """A choice as a pin has it: the name without its number, and what tells it from others of this name."""
    described = choice.description or ", ".join(f"{k}={v!r}" for k, v in sorted(getattr(choice, "kwargs", {}).items()))
    return f"{stem(choice.name)}: {described}" if described else stem(choice.name)


def _source(choice: Any) -> str | None:
    """Inductor's hash of the template; None where it has none, as for a library."""
    template = getattr(choice.annotations.get("ktc"), "template", None)
    found = getattr(template, "src_hash", None)
    return None if found is None else str(found)[:16]


# --- pins -----------------------------------------------------------------------------------------


def _pinned(sessions: Sequence[Observer], asked: Asked, cache: Any, choices: Any) -> list[Any] | None:
    if not any(session.settings.policy is not None and session.settings.policy.pins for session in sessions):
        return None
    for keep in getattr(cache, "preprocessing_fns", ()):  # the program's own filters
        choices = keep(choices)
    found = [choice for session in sessions if (choice := _pinned_by(session, asked, choices)) is not None]
    return found[-1:] or None


def _pinned_by(session: Observer, asked: Asked, choices: Iterable[Any]) -> Any:
    """The choice that a session's policy pins; None without one."""
    policy, pin = session.settings.policy, session.settings.pin_for(*asked)
    if policy is None or pin is None:
        return None
    choice = next((choice for choice in choices if choice_text(choice) == pin.config), None)
    if choice is None:
        session.note(f"{policy.path}: {pin.function} has no choice {pin.config!r} any more; pin it again")
    elif pin.source not in (None, _source(choice)):
        session.note(f"{policy.path}: the template {pin.config!r} of {pin.function} has changed; pin it again")
        return None
    return choice


# --- what was chosen ------------------------------------------------------------------------------


def _selected(sessions: Sequence[Observer], asked: Asked, choices: Any, node: Any, chosen: Any) -> None:
    if chosen is not None:
        _report(sessions, asked, chosen, choices)
    else:
        setattr(node.data.data, _ASKED, asked)  # a MultiTemplateBuffer in its boxes


def _final(buffer: Any) -> Any:
    """The choice of a MultiTemplateBuffer whose scheduling is over: the template whose code it makes; without one, the
    fastest of the others, which has taken its place."""
    templates = [choice for choice in buffer.choices if hasattr(choice, "get_make_kernel_render")]
    if buffer.make_kernel_render is not None:
        return next(choice for choice in templates if choice.get_make_kernel_render() is buffer.make_kernel_render)
    measured = buffer.choice_timings()
    return min((c for c in buffer.choices if c not in templates), key=lambda c: measured.get(c, float("inf")))


def _report(sessions: Sequence[Observer], asked: Asked, chosen: Any, choices: Iterable[Any]) -> None:
    among = list(dict.fromkeys(map(choice_text, choices)))
    for session in sessions:
        session.selected(*asked, choice_text(chosen), among, _source(chosen))


# --- pins of a policy -----------------------------------------------------------------------------


BY = "Inductor"
_SOURCE = "source="
_PASSING = re.compile(r"""(?<=index=)\d+|(?<='backend_hash': ')\w+""")
_OPTIONS = ("num_warps", "num_stages")


def key_of(filename: str | None, inductor_meta: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """The name of a generated kernel without its number, and the key of its pin; None if its source is not at hand."""
    name = inductor_meta.get("kernel_name")
    if not filename or not isinstance(name, str):
        return None
    text = _PASSING.sub("", Path(filename).read_text("utf-8")).replace(name, "KERNEL")
    return stem(name), (f"{_SOURCE}{hashlib.sha256(text.encode()).hexdigest()[:16]}",)


def key_of_pins(policy: Policy | None) -> str:
    """Names the pins for Inductor in its cache keys: a graph in its cache holds the configurations that were compiled.
    Empty without one."""
    pins = () if policy is None else policy.pins
    own = [f"{pin.function} {pin.key} {pin.config}" for pin in pins if pin.key[0].startswith((_SOURCE, INPUT))]
    return hashlib.sha256("\n".join(own).encode()).hexdigest() if own else ""


def pinned(session: Observer, configs: Sequence[Any], filename: str | None, inductor_meta: Mapping[str, Any]) -> Any:
    """The configuration that a session's policy pins; None without one."""
    policy = session.settings.policy
    if policy is None or not key_of_pins(policy) or (key := key_of(filename, inductor_meta)) is None:
        return None
    pin = next((pin for pin in policy.pins if (pin.function, pin.key) == key), None)
    if pin is None:
        return None
    config = next((config for config in configs if str(config) == pin.config), None) or _made(pin.config, configs)
    if config is None:
        session.note(f"{policy.path}: {pin.function} has no configuration {pin.config!r} any more; pin it again")
    else:
        config.found_by_coordesc = config.found_by_combo_autotune = True  # nothing is to be looked for around it
    return config


def _made(text: str, configs: Sequence[Any]) -> Any:
    """A configuration that coordinate descent found beside the others, from its text; None if it has other names."""
    values = dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)
    names = set(configs[0].kwargs) if configs else set()
    numbers = {name: int(value) for name, value in values.items() if value.isdigit()}
    if not names or not names | set(_OPTIONS) <= numbers.keys():
        return None
    kwargs = {name: numbers[name] for name in configs[0].kwargs}
    made = type(configs[0])(kwargs, **{name: numbers[name] for name in _OPTIONS})
    return made if str(made) == text else None
