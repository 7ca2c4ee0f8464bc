"""Helpers for every package: files, locks, imports, text, TOML, JSON schemas, version numbers, C++ names."""
