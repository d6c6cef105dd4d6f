"""The records of requests, ended and live, in this worker's memory."""
