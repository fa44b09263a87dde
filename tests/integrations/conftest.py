"""Frameworks are imported by test modules before ours; torchvision must work by then."""

from __future__ import annotations

from d2ace.integrations._torchvision import mend_torchvision

mend_torchvision()
