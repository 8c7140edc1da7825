"""From foreign files (FASTA, intervals and a genome, ...) to a Zarr group: ``fcl.convert.run.convert``.

The package imports nothing, so that the help of the command is fast.
"""
