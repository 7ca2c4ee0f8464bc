"""Tensor cores: what they add and round (sums.py, architectures.py), and which thread holds what (fragments.py)."""
