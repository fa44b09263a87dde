"""Readers of files, one a format; each returns checked tables of rows and labels."""
