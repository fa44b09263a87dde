"""The version of the package, written down here alone."""

VERSION = "0.1.0"
