"""Names of the environment variables by which tritonhook passes settings to other processes. tritonhook sets them,
never the user."""

RUN = "TRITONHOOK_RUN"  # `tritonhook run`: RunConfig as JSON
DRY_RUN = "TRITONHOOK_DRY_RUN"  # `tritonhook run --arch`: DryRun as JSON
EMULATE = "TRITONHOOK_EMULATE"  # `tritonhook run --emulate`: Emulation as JSON
RUN_ID = "TRITONHOOK_RUN_ID"  # `tritonhook run`: the start time of the run, and a hash of its command
WATCH = "TRITONHOOK_WATCH"  # `tritonhook mem watch`: folder and period as JSON
WRAPPER = "TRITONHOOK_PTXAS_WRAPPER"  # "off": the ptxas wrapper only runs the real ptxas
WRAPPER_HOME = "TRITONHOOK_PTXAS_WRAPPER_HOME"  # `tritonhook run`: WrapperHome as JSON
# For torch.compile's worker processes: the rewrite key and the id of the process that started them.
INDUCTOR = "TRITONHOOK_INDUCTOR"
