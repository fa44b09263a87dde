"""Keeping it: the SQLite file of a store, and the same as CSV."""
