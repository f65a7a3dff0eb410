"""The version of the package, from its metadata."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("rltel")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0.0.0"
