"""Reports: what was found, as plain data, and its renderings for terminals, Markdown, browsers and trace viewers."""
