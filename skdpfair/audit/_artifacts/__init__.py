"""The scanner of artefacts: readers, then a graph of what they found, then a verdict."""
