"""Published and own measurements: read, predicted, compared and fitted."""
