"""``python -m d2ace`` is the command ``d2ace``."""

from d2ace.cli import main

main()
