"""The report that compares studies."""
