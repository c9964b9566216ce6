"""Helpers that know nothing of privacy: validation, files, progress, descriptions."""
