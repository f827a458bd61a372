"""Constants fitted to measured runs."""
