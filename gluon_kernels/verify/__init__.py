"""Check attentions and measure their speed: reference, checks, benchmark. All need torch; timing needs a GPU."""
