"""Capture: write what the compilers in a running program produce into a folder. The main module is session.py. Each
front end (Triton, CuTe DSL) has a package."""
