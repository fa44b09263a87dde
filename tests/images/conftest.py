"""What the tests of images share: the folder with the real datasets, where there is one."""

from realdata import data_root, real

__all__ = ["data_root", "real"]
