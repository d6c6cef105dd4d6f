"""Reading tool calls out of text as it arrives, one reader for each way of writing them."""
