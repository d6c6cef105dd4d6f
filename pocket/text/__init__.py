"""The text generator: pure standard library, seeded, one module per family of tasks."""
