"""Small tasks of our own."""
