"""The asynchronous driver: a supervisor, writers and a trainer, each in its own process.

Children are fresh interpreters that communicate with the supervisor only: messages over a socket pair,
and arrays of rows and columns in anonymous shared memory. Importing this package and the modules
``shared``, ``channel``, ``children`` and ``child`` loads neither numba nor a library for file formats.
"""
