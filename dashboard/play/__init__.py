"""The parts of the playground's page."""
