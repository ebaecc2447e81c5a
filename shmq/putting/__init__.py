"""Putting: one message or many, in place, once, or built aside and adopted as a whole."""
