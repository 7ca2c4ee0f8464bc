"""Find the lever (another kernel name, ptxas version or ptxas option) that makes a kernel faster. The candidates are
assembled on the CPU, and race on the GPU."""
