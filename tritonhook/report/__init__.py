"""Results of the verbs (the subcommands), and how they are shown: value -> JSON document -> Summary -> terminal,
Markdown, notebook, HTML."""
