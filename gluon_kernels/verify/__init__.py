"""Check attention functions and measure their speed: reference, checks, benchmark. Needs torch; timing needs a GPU."""
