"""The errors of tritonhook. Each message names the thing, its value and the remedy."""

from __future__ import annotations


class TritonHookError(Exception):
    """Base of every error raised on purpose. The command line prints it in one line and exits with 2."""


class ToolError(TritonHookError):
    """ptxas or nvdisasm is missing, unusable, or failed."""


class PtxError(TritonHookError):
    """The text is not PTX, or a rewrite does not fit it."""


class CubinError(TritonHookError):
    """The bytes are not a CUDA ELF image that can be read."""


class CaptureError(TritonHookError):
    """A capture folder or a hook slot cannot be used."""


class DeviceError(TritonHookError):
    """There is no GPU, or it failed or refused what was asked of it."""


class UsageError(TritonHookError):
    """A command was called with arguments that do not go together."""
