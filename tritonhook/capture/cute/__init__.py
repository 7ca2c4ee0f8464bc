"""Capture kernels from the CuTe DSL: hooks.py patches its compiler, rename.py renames kernels in its MLIR modules,
modules.py reads the compiled modules, launches.py records launches."""
