"""Recorded launches: record.py has the values, recorder.py takes them from a running program."""
