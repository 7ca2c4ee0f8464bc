"""NVIDIA's assembler and disassembler: find them, install ptxas by version, run them and report crashes."""
