"""Names of the environment variables with which tritonhook reaches other processes. Set by tritonhook, never by
users."""

RUN = "TRITONHOOK_RUN"  # under `tritonhook run`: RunConfig as JSON
DRY_RUN = "TRITONHOOK_DRY_RUN"  # the same, with --arch: DryRun as JSON
EMULATE = "TRITONHOOK_EMULATE"  # the same, with --emulate: Emulation as JSON
RUN_ID = "TRITONHOOK_RUN_ID"  # the same: when the run began, and a hash of its command
WATCH = "TRITONHOOK_WATCH"  # under `tritonhook mem watch`: folder and period as JSON
WRAPPER = "TRITONHOOK_PTXAS_WRAPPER"  # "off": the ptxas wrapper only runs the real ptxas
WRAPPER_HOME = "TRITONHOOK_PTXAS_WRAPPER_HOME"  # under `tritonhook run`: WrapperHome as JSON
INDUCTOR = (
    "TRITONHOOK_INDUCTOR"  # for torch.compile's workers: the key of the launching process's rewriting, and its id
)
