"""Which lever makes a kernel faster: candidates, assembled on the CPU, for a race on the GPU."""
