"""From foreign files (FASTA, intervals and a genome, ...) to a Zarr group; see the README beside."""

from fcl.convert.run import Summary, convert

__all__ = ["Summary", "convert"]
