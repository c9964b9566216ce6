"""Tables, labels and groups in any container, as arrays."""
