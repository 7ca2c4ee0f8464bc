"""Reports: values in, text out. No GPU, no tool, no files."""
