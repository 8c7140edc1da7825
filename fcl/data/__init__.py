"""Data sets: where rows, targets and weights come from.

``open_data`` recognises the container (Zarr, HDF5, ``.npy``, memory) and returns a ``DataSet``, whose
``rows`` are read along the storage chunks (``RowReader``, ``SparseRowReader``). ``SequenceReader``
converts them to blocks of nucleotide codes, ``NumericReader`` to blocks of floats, dense or sparse.
zarr and h5py are imported only when such a container is opened.
"""

from fcl.data.base import RowReader
from fcl.data.dataset import DataSet
from fcl.data.numeric import NumericReader, check_columns, check_finite
from fcl.data.open import open_data
from fcl.data.sequences import SequenceReader
from fcl.data.sparse import SparseRowReader, SparseRows
from fcl.data.targets import check_weights, encode_labels, regression_target

__all__ = [
    "DataSet",
    "NumericReader",
    "RowReader",
    "SequenceReader",
    "SparseRowReader",
    "SparseRows",
    "check_columns",
    "check_finite",
    "check_weights",
    "encode_labels",
    "open_data",
    "regression_target",
]
