"""Recorded launches of kernels: record.py defines a recorded launch, recorder.py records launches in a running
program."""
