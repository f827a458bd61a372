"""Layers over stages, better than evenly."""
