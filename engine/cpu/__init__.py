"""Running Llama-like decoders on a CPU: the whole forward pass is one compiled call."""
