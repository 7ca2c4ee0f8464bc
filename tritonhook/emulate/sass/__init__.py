"""Decode machine code for the emulator. decode.py decodes a kernel; most other modules decode one group of opcodes."""
