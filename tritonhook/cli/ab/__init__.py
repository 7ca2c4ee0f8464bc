"""Time two forms of a kernel in turns on a GPU: under its own name and a new one, or changed by options.

It times MODULE:FUNCTION (a function that launches, or returns one that does), the launch that takes most of the time
of SCRIPT.py, a capture with recorded launches (`tritonhook run --launches`), or two cubins or PTX with a recorded
launch (`--args`). Both forms run in turn; the same code under a control name shows the noise. Without a GPU,
`tritonhook diff KERNEL --rename` compares the codes. Exit codes: 0 same, 1 faster or slower, 2 inconclusive, wrong
outputs or trouble; with --fail-on slower: 1 if slower, else 0.

  tritonhook ab my_kernels:launch --save result.json
  tritonhook ab train.py -- --steps 3
  tritonhook ab captures/kernels/softmax-0123 --strip
  tritonhook ab a.cubin b.cubin --args launch.json
  tritonhook ab --from result.json
"""

from __future__ import annotations

from tritonhook.cli.ab.targets import Options
from tritonhook.cli.ab.timed import run

__all__ = ["Options", "run"]
