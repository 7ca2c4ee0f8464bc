"""Renderers: a Summary (for HTML a Page) in, text out. They know no kind of result."""
