"""One model on several devices: tensor parallelism, a process (rank) for each device."""
