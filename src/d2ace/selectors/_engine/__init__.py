"""What carries every selector and no author of a method needs: devices, place, state, checks."""
