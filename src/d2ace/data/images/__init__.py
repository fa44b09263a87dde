"""Images with several labels each."""
