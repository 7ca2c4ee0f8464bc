"""Summaries: one module for each kind of JSON document. A document in, the Summary that every renderer shows out."""
