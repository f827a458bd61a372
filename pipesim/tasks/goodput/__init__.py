"""A whole training: days, price, checkpoints."""
