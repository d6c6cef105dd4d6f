"""A soak: mixed load over every API, with every answer and every count checked."""
