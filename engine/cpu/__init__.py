"""The CPU's own path: a Llama-like decoder's whole forward pass in one compiled call."""
