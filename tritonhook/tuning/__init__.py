"""Find the lever that makes a kernel faster: candidates, assembled on the CPU, race on the GPU."""
