"""One fit, from parameters to a report."""
