"""A program whose matrix product torch.compile autotunes among templates (max-autotune), without a GPU: that of a dry
run stands in for it, and the clock of the autotuning is made up.

    python gemm_program.py STEPS

STEPS: JSON, a list of objects. out: where a session keeps what it captures. warps: the template with so many is the
fastest; 0: the library's product. policy: of the session. until_fused: the choice stays open until fusions were tried,
which is usual. Prints for each, as JSON, the session's notes and how often the clock was asked.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any


def stand_in_gpu(step: dict[str, Any], asked: list[str]) -> ExitStack:
    """A made-up H100 whose clock favours the step's choice. asked: gets each operation that is measured."""
    from tritonhook.capture.dry_run.gpu import DryRun
    from tritonhook.capture.dry_run.process import begin_torch, begin_triton
    from tritonhook.capture.patching import Patch

    def measured(
        cache: Any, name: str, nodes: Any, layout: Any, inputs: Any, key: Any, choices: Any, *_: Any, **__: Any
    ):
        asked.append(name)
        return {each: 1.0 if each.info_dict().get("num_warps", 0) == step["warps"] else 2.0 for each in choices}

    with ExitStack() as stack:
        stack.enter_context(begin_triton(DryRun(90)))
        stack.enter_context(begin_torch(DryRun(90)))
        import torch._inductor.config  # here: it binds functions of torch.cuda
        import torch._inductor.scheduler as scheduling
        import torch._inductor.select_algorithm as selecting

        patches = [
            Patch(selecting.AlgorithmSelectorCache, "do_autotuning", lambda _: measured),
            Patch(scheduling.Scheduler, "benchmark_codegened_module", lambda _: lambda *_: (0.5, "")),
            Patch(scheduling.Scheduler, "benchmark_fused_nodes", lambda _: lambda *_: (1.0, "")),
            Patch(torch._inductor.config, "benchmark_epilogue_fusion", lambda _: step.get("until_fused", False)),
        ]
        for patch in patches:
            stack.callback(patch.undo)
        return stack.pop_all()


def multiply() -> None:
    import torch

    torch._dynamo.reset()

    @torch.compile(mode="max-autotune-no-cudagraphs")
    def product(a: Any, b: Any) -> Any:
        return (a @ b).relu()

    a, b = (torch.zeros(size, dtype=torch.float16, device="cuda") for size in ((256, 128), (128, 512)))
    product(a, b)


def main() -> None:
    import tritonhook

    told = []
    for step in json.loads(sys.argv[1]):
        asked: list[str] = []
        with stand_in_gpu(step, asked), tritonhook.session(step["out"], policy=step.get("policy")) as session:
            multiply()
        told.append({"notes": session.notes, "asked": len(asked)})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
