"""What Quire shows of itself: the catalogue of every signal, and the exporters that carry it."""
