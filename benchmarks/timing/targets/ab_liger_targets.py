"""Kernels of liger-kernel, to time by name: `tritonhook ab ab_liger_targets:jsd`. Needs `pip install liger-kernel`."""

from __future__ import annotations

from collections.abc import Callable

import torch

Launch = Callable[[], torch.Tensor]
VOCABULARY = 32768
ROWS = 2048  # 256 MiB a tensor: five times the L2 cache of an H100
JSD_ROWS = 512  # four tensors, and 3 ms for 2,048 rows: with fewer, a process takes many samples in its time


def _log_probabilities(seed: int, rows: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(rows, VOCABULARY, device="cuda", generator=generator).log_softmax(-1)


def jsd() -> Launch:
    """The generalised Jensen-Shannon divergence with its gradient, beta 0.5: the Triton kernel alone.

    The package's own function copies its input first, and on Hopper may take another kernel.
    """
    from liger_kernel.ops.jsd import _jsd_kernel

    student, teacher = (_log_probabilities(seed, JSD_ROWS) for seed in (0, 1))
    loss, gradient = torch.empty_like(student), torch.empty_like(student)
    labels = torch.empty(1, device="cuda")
    rows = [part for tensor in (student, teacher, loss, gradient) for part in (tensor, VOCABULARY)]  # with its stride
    options = {"beta": 0.5, "n_non_ignore": JSD_ROWS, "ignore_index": -100, "HAS_LABEL": False}
    options |= {"n_cols": VOCABULARY, "BLOCK_SIZE": VOCABULARY}

    def launch() -> torch.Tensor:
        _jsd_kernel[(JSD_ROWS,)](*rows, labels, **options)
        return gradient

    return launch


def kl_div() -> Launch:
    """The Kullback-Leibler divergence, as batch mean."""
    from liger_kernel.ops.kl_div import kldiv_forward_triton

    predicted, wanted = _log_probabilities(0, ROWS), _log_probabilities(1, ROWS).exp()
    return lambda: kldiv_forward_triton(predicted, wanted, False, "batchmean", 1e-10)
