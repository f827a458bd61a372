"""The report of schedules that really ran."""
