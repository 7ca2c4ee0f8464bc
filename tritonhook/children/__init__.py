"""Capture in the child processes of a program: the parent process uses environment.py, each child bootstrap.py. In a
dry run, the child processes also execute launches on the CPU."""

from pathlib import Path

SITE = Path(__file__).parent / "_site"  # the folder that the parent inserts first in PYTHONPATH
