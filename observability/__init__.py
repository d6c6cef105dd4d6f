"""What Quire reports about itself: the catalogue of all signals, and their exporters."""
