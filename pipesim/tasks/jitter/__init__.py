"""Steps with chance."""
