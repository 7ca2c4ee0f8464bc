"""Does the assembler compute what the PTX says? The same kernel, assembled in several ways, on the same buffers."""
