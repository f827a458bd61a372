"""A schedule on real processes."""
