"""RunConfig: the settings of `tritonhook run` for its child processes, as JSON in one environment variable.

This module is separate from settings.py, because it must import little: the ptxas wrapper reads the variable at each
call of ptxas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tritonhook._util.variables import RUN
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.errors import UsageError
from tritonhook.rename import Rename


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The settings of a run. All values can be written as JSON.

    out: absolute folder for captures. only: regular expression for the kernels' own names. rewrites: names of rewrites
    in settings.REWRITES, applied after the rename. launches: "shapes" or "values", as in Settings. ptxas: path of
    another ptxas. options: further options for ptxas. policy: file with the applicable entries, written by
    policy.model.kept_policy. dry_run: target of a dry run, passed in an environment variable of its own.
    """

    out: Path
    only: str | None = None
    rename: Rename | None = None
    rewrites: tuple[str, ...] = ()
    launches: str | None = None
    ptxas: str | None = None
    options: tuple[str, ...] = ()
    policy: Path | None = None
    dry_run: DryRun | None = None

    def to_environment(self) -> dict[str, str]:
        """Return the variables for the environment of a child process."""
        config = asdict(self)
        del config["dry_run"]  # it has a variable of its own
        return {RUN: json.dumps(config, default=str), **({} if self.dry_run is None else self.dry_run.to_environment())}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunConfig:
        """Read the variables that `to_environment` made. Raises UsageError if they are missing or damaged."""
        try:
            config = json.loads(environment[RUN])
            return cls(
                Path(config["out"]),
                config["only"],
                None if config["rename"] is None else Rename(**config["rename"]),
                tuple(config.get("rewrites") or ()),
                config.get("launches"),
                config.get("ptxas"),
                tuple(config.get("options") or ()),
                Path(policy) if (policy := config.get("policy")) else None,
                DryRun.from_environment(environment),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{RUN}: not set by `tritonhook run`: {type(error).__name__}: {error}") from None
