"""The files that start a layout."""
