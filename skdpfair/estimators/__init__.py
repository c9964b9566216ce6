"""The classifier and the regressor, and what they have in common."""
