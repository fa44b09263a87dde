"""``python -m d2ace`` is the command ``d2ace``."""

from .cli import main

main()
