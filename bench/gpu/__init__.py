"""The GPU path compared with the machine's limits; see README.md in this folder."""
