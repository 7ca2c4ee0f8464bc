"""Renderers: turn a Summary, a Page or code into text."""
