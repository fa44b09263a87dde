"""Small tools that every package may use; they know nothing of the packages."""
