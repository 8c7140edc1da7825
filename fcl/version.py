"""The installed version of fcl, in a module of its own because looking it up takes 20 ms."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fcl")
except PackageNotFoundError:
    __version__ = "0+unknown"  # run from a checkout that was never installed
