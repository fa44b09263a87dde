"""Runs on images, where they differ from runs on tables."""
