"""From hidden states to one vector a text."""
