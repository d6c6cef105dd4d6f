"""Converts logits to tokens, vectorised over the batch."""
