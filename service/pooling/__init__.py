"""Converts texts to vectors and scores; shared by the routes for them."""
