"""Schedules run by real torch processes, held against a single process and against the simulator."""
