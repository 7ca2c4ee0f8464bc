"""Recorded launches of kernels: record.py has the values, recorder.py records them in a running program."""
