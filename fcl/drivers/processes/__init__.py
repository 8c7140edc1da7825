"""The asynchronous driver: a supervisor, writers and a trainer, each a process of its own.

Children are fresh interpreters that talk to the supervisor only: small messages over a socket pair,
arrays in anonymous shared memory. Importing this package and the modules of its plumbing (``shared``,
``channel``, ``children``, ``child``) loads neither numba nor a file format.
"""
