"""Launch arguments or a model's config, read."""
