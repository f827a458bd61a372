"""The report of one layout."""
