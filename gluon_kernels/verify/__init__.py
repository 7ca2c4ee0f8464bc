"""Is an attention right, and how fast is it: reference, checks, benchmark. All need torch; timing needs a GPU."""
