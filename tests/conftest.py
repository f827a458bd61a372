"""Settings of all tests: machines are shared, so no example has a deadline."""

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
