"""The GPU path against the machine's limits; see README.md here."""
