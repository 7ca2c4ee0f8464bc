"""Predict, watch and compare GPU memory that no allocator shows.

tritonhook mem predict CAPTURE|CUBIN|PTX --gpu "RTX 5090" --fail-over 256MiB
tritonhook mem watch script.py
tritonhook mem compare --variants plain,tma examples/tma_memory.py
"""

from __future__ import annotations

from tritonhook.cli._parser import verb_in

ACTIONS = tuple(verb_in(__name__, action) for action in ("predict", "watch", "compare"))
