"""The report of a sweep: its answer, tables and pictures."""
