"""Many layouts at once: enumerate and evaluate them."""
