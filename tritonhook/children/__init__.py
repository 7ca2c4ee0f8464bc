"""Reaching the child processes of a program: environment.py is the parent's side, bootstrap.py the child's."""

from pathlib import Path

SITE = Path(__file__).parent / "_site"  # the folder that the parent puts first on PYTHONPATH
