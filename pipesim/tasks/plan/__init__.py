"""The report of a plan; what is searched stands in ``pipesim.plan.search``."""
