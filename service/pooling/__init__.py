"""Texts to vectors and scores: what the routes for them share."""
