"""A timeline drawn: as SVG, as text, for papers, and as a trace for browsers."""
