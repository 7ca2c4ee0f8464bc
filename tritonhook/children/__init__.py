"""Capture in the child processes of a program: the parent process uses environment.py, each child bootstrap.py. Also
execute a dry run's launches on the CPU, in these processes."""

from pathlib import Path

SITE = Path(__file__).parent / "_site"  # the folder that the parent inserts first in PYTHONPATH
