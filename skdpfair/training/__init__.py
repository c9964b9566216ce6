"""One fit, from parameters to a privacy report."""
