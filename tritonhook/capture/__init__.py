"""Capture: write what the compilers in a running program produce into a folder. session.py is the centre; each front
end (Triton, CuTe DSL) has a package."""
