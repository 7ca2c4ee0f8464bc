"""The tests; `support` holds what several of them use."""
