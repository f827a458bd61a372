"""Rows of results: their one schema, their files, and the manifest that says where they come from."""
