"""From a prepared prompt to an ordered log of output events."""
