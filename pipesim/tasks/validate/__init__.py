"""Predictions beside measured runs."""
