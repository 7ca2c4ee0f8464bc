"""Results of the verbs, and how they are shown: value -> JSON document -> Summary -> terminal, Markdown, notebook,
HTML."""
