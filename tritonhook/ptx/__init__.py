"""PTX text: parse it, rename its symbols, rewrite its statements."""
