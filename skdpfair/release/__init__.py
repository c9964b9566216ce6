"""Releases of fitted estimators without records: safetensors files, read back or looked into."""
