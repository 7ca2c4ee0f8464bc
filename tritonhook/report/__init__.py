"""Results, shown: value -> document (JSON) -> Summary -> terminal, Markdown, notebook or HTML page."""
