"""Settings: which kernels a session captures, and how it rewrites them; made from the user's arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.policy.model import USUAL_NAME, Pin, Policy, from_json, kept_policy, read_policy
from tritonhook.capture.run_config import RunConfig
from tritonhook.errors import CaptureError, PolicyError, UsageError
from tritonhook.ptx.cta_loads import NAME as TMA_CTA
from tritonhook.ptx.cta_loads import ClusterToCta
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import NAME as MMA_THROUGHPUT
from tritonhook.ptx.throughput_pragma import ThroughputPragma
from tritonhook.rename import Rename, Rewrite, Rewrites, make_rename

DEFAULT_OUT = "tritonhook-captures"
SHAPES, VALUES = "shapes", "values"  # what a launch's record has: only shapes and scalars, or also buffers' contents
# The rewrites that users select by name.
REWRITES: Mapping[str, Rewrite] = {TMA_CTA: ClusterToCta(), MMA_THROUGHPUT: ThroughputPragma()}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session.

    out: absolute folder for captures. only: regular expression; the session handles only kernels whose own name matches
    it (re.search). launches: what to record of each launch, SHAPES or VALUES; None records no launches. assembling: a
    ptxas that replaces the compiler's, or further options; None changes neither. policy: chooses rewrites and ptxas for
    each kernel; if it is set, `rewrites` and `assembling` are not used. dry_run: target of a dry run, in which kernels
    are compiled and not launched.
    """

    out: Path
    rewrites: Rewrites = field(default_factory=Rewrites)
    only: str | None = None
    launches: str | None = None
    assembling: Assembling | None = None
    policy: Policy | None = None
    dry_run: DryRun | None = None

    @property
    def key(self) -> str:
        """Text for cache keys that identifies the session's changes to kernels: rewrites, ptxas, options, policy; empty
        if the session changes nothing."""
        if self.policy is not None:
            return f"tritonhook:{self.only or ''}:{self.policy.key}" if self.policy.key else ""
        if self.assembling is not None:
            return f"tritonhook:{self.only or ''}:{self.rewrites.key}:{self.assembling.key}"
        return f"tritonhook:{self.only or ''}:{self.rewrites.key}" if self.rewrites.steps else ""

    @property
    def renames(self) -> bool:
        if self.policy is not None:
            return self.policy.without_renames.key != self.policy.key
        return self.rewrites.without_renames != self.rewrites

    @property
    def without_renames(self) -> Settings:
        policy = None if self.policy is None else self.policy.without_renames
        return replace(self, rewrites=self.rewrites.without_renames, policy=policy)

    def wants(self, kernel: str) -> bool:
        """Check whether the session handles the kernel with this original name."""
        return self.only is None or re.search(self.only, kernel) is not None

    def pin_for(self, function: str, arch: str, key: tuple[str, ...]) -> Pin | None:
        """Return the policy's pin for a key of an autotuned function, else None."""
        return None if self.policy is None else self.policy.pin_for(function, arch, key, self._gpu_name)

    def _gpu_name(self) -> str:
        if self.dry_run is not None:
            return self.dry_run.gpu.name
        from tritonhook.device.cuda_driver import gpu_name

        return gpu_name()

    @classmethod
    def from_run_config(cls, config: RunConfig) -> Settings:
        """Make the settings of a process under `tritonhook run`. Raises TritonHookError if they contradict each
        other."""
        return make_settings(
            config.out,
            config.rename,
            only=config.only,
            rewrites=config.rewrites,
            launches=config.launches,
            ptxas=config.ptxas,
            options=config.options,
            policy=None if config.policy is None else from_json(config.policy.read_text()),
            dry_run=config.dry_run,
        )

    def to_run_config(self) -> RunConfig:
        """Convert the settings for child processes. Raises UsageError for a rewrite that cannot be passed on by
        name."""
        steps = self.rewrites.steps
        renames = [step for step in steps[:1] if isinstance(step, Rename)]
        named = [name for step in steps[len(renames) :] for name, known in REWRITES.items() if step == known]
        if len(renames) + len(named) < len(steps):
            raise UsageError(f"child processes support only a rename, then rewrites from {', '.join(REWRITES)}")
        own = self.assembling or Assembling()
        rename = renames[0] if renames else None
        policy = None if self.policy is None else kept_policy(self.policy, self.out)
        return RunConfig(
            self.out, self.only, rename, tuple(named), self.launches, own.path, own.options, policy, self.dry_run
        )


def make_settings(
    out: str | os.PathLike[str] | None = None,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str | None = None,
    ptxas: str | os.PathLike[str] | None = None,
    options: str | Sequence[str] | None = None,
    policy: str | os.PathLike[str] | Policy | None = None,
    dry_run: DryRun | None = None,
) -> Settings:
    """Make settings from the arguments of `enable`. Raises TritonHookError if they contradict each other."""
    if policy is not None and (rename or strip or rewrites or ptxas or options):
        raise UsageError(
            "the policy chooses the changes of each kernel: leave out rename, strip, rewrites, ptxas and options, "
            "or leave out the policy"
        )
    if launches not in (None, True, False, SHAPES, VALUES):
        raise CaptureError(f"launches={launches!r}: give True or {VALUES!r}")
    _check_only(only)
    folder = _out_folder(default_out() if out is None else out)
    kept = launches if isinstance(launches, str) else SHAPES if launches else None
    steps = _as_rewrites(rewrites)
    if policy is not None and not isinstance(policy, Policy):
        path = _policy_path(policy)
        policy = read_policy(path)
    if step := make_rename(rename, strip):
        steps = (step, *steps)
    assembling = Assembling.of(None if ptxas is None else os.fspath(ptxas), options)
    if reason := Rewrites(steps).why_not(assembling.version if assembling else None):
        raise CaptureError(reason)
    return Settings(folder.absolute(), Rewrites(steps), only, kept, assembling, policy, dry_run)


def _policy_path(policy: object) -> Path:
    if not isinstance(policy, (str, os.PathLike)) or not policy or not isinstance(os.fspath(policy), str):
        raise PolicyError(f"policy={policy!r}: give the file as text or a Path, e.g. policy={USUAL_NAME!r}")
    return Path(policy)


def default_out() -> str:
    """Return the default folder for captures."""
    return os.environ.get("TRITONHOOK_OUT") or DEFAULT_OUT


def rewrite_by_name(ptx: Ptx, name: str, entries: tuple[str, ...] | None = None) -> tuple[Ptx, tuple[str, ...]]:
    """Apply a rewrite of REWRITES to a module. Returns the new module and the rewrite's remarks.

    entries: rewrite only these kernels. Raises UsageError if nothing changes, PtxError if the rewrite is not possible.
    """
    step: Rewrite = REWRITES[name]
    if entries is not None:
        if not isinstance(step, ThroughputPragma):
            raise UsageError(f"--rewrite {name} always changes the whole module; leave --entry out")
        step = ThroughputPragma(entries)
    changed = step.apply(ptx)
    remarks = Rewrites((step,)).remarks(ptx)
    if changed is ptx:
        why = "; ".join(remarks) or "no kernel here has anything to rewrite"
        raise UsageError(f"--rewrite {name} changes nothing: {why}")
    return changed, remarks


def names_of_rewrites(rewrites: Rewrites, ptx: Ptx) -> str | None:
    """List the rewrites, other than renames, as text. A rewrite in REWRITES is listed by its name, another by its key.
    Returns None if the rewrites do not change the module."""
    others = rewrites.without_renames
    if not others.steps or others.apply(ptx) is ptx:
        return None
    return ", ".join(map(name_of_rewrite, others.steps))


def name_of_rewrite(rewrite: Rewrite) -> str:
    """Return a rewrite's name in REWRITES, else its key."""
    return next((name for name, known in REWRITES.items() if known.key == rewrite.key), rewrite.key)


def _as_rewrites(given: object) -> tuple[Rewrite, ...]:
    """Read the user's `rewrites=`: one rewrite or several, as names or objects."""
    several = isinstance(given, Iterable) and not isinstance(given, (Rewrite, str))
    named: tuple[Any, ...] = tuple(given) if several else (given,)  # type: ignore[arg-type]
    if unknown := [name for name in named if isinstance(name, str) and name not in REWRITES]:
        raise CaptureError(f"rewrites={unknown[0]!r}: no such rewrite; choose from {', '.join(REWRITES)}")
    rewrites = tuple(REWRITES[item] if isinstance(item, str) else item for item in named)
    for rewrite in rewrites:
        if not isinstance(rewrite, Rewrite) or not isinstance(rewrite.key, str):
            raise CaptureError(f"{rewrite!r} is not a rewrite: it needs .key (a text) and .apply(ptx)")
    return rewrites


def _check_only(only: object) -> None:
    if not isinstance(only, (str, type(None))):
        raise CaptureError(f"only={only!r}: give a regular expression as text, e.g. only='attn'")
    try:
        re.compile(only or "")
    except re.error as error:
        raise CaptureError(f"only={only!r} is not a regular expression: {error}") from None


def _out_folder(out: object) -> Path:
    """Check the user's `out=`. Empty text is refused, because as a path it would mean the current folder, which users
    rarely intend."""
    if not isinstance(out, (str, os.PathLike)) or not isinstance(path := os.fspath(out), str):
        raise CaptureError(f"out={out!r}: give the folder as text or a Path, e.g. out='captures'")
    if not path or "\0" in path:
        raise CaptureError(
            f"out={out!r} is not a folder name; give one, e.g. out='captures' (out='.' is the current folder)"
        )
    return Path(path)
