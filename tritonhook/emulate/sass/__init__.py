"""Machine code for the emulator's machine: decode.py reads a kernel, the other modules know a group of opcodes each."""
