"""Collects candidates, the largest |sum| and the excess over a floor from many integer sums."""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.ordered import first_from

#: Indices of the float64 results in ``found``; see :func:`take`.
LARGEST, SKIPPED, COUNT, EXCESS, VISITED = range(5)
FOUND = 5


class Wanted(NamedTuple):
    """Which sums a search must find, and what it has found."""

    threshold: int  # sums of at most this size need not be kept
    floor: float  # the level of the excess; infinite: no excess is needed
    known: np.ndarray  # int64, sorted: watched features, whose sums are reported but not kept
    known_sums: np.ndarray  # int64, overwritten with the sums of these features
    heap_id: np.ndarray  # int64 (capacity,): the other features with the largest sums, as a heap
    heap_value: np.ndarray  # int64 (capacity,): their sums
    found: np.ndarray  # float64 (FOUND,), see :func:`take`
    #: 1 or -1: only sums of the opposite sign count, since no weight has the other; 0: all
    side: int


@kernel
def push(heap_id, heap_value, count, feature, value):
    """Push a value to a heap of the largest |values|, whose root is the smallest; returns the count.

    Ties are broken by the order of arrival, which is the same in every run.
    """
    capacity = heap_id.shape[0]
    if count < capacity:
        i = count
        count += 1
        while i > 0:
            parent = (i - 1) >> 1
            if abs(heap_value[parent]) <= abs(value):
                break
            heap_id[i] = heap_id[parent]
            heap_value[i] = heap_value[parent]
            i = parent
    else:
        i = 0
        while True:
            child = 2 * i + 1
            if child >= count:
                break
            if child + 1 < count and abs(heap_value[child + 1]) < abs(heap_value[child]):
                child += 1
            if abs(heap_value[child]) >= abs(value):
                break
            heap_id[i] = heap_id[child]
            heap_value[i] = heap_value[child]
            i = child
    heap_id[i] = feature
    heap_value[i] = value
    return count


@kernel
def edge(wanted):
    """Sums with |sum| up to this, int64, neither become candidates nor add to the excess."""
    threshold = wanted.threshold
    if wanted.found[COUNT] == wanted.heap_value.shape[0]:
        threshold = max(threshold, abs(wanted.heap_value[0]))
    return threshold if wanted.floor >= threshold else int(wanted.floor)


@kernel
def take(feature, total, wanted):
    """Take the sum of a feature into account: updates ``known_sums``, the heap and ``found`` in place.

    ``found`` holds the largest size; the largest bound of skipped features; the number of kept features;
    the sum of max(0, size - floor)^2; the number of features whose sum was made. ``found[SKIPPED]`` and
    ``found[VISITED]`` are updated by the caller.
    """
    floor, known, found = wanted.floor, wanted.known, wanted.found
    size = abs(total) if wanted.side * total <= 0 else np.int64(0)
    found[LARGEST] = max(found[LARGEST], float(size))
    if size > floor:
        found[EXCESS] += (size - floor) * (size - floor)
    at = first_from(known, feature)
    if at < known.shape[0] and known[at] == feature:
        wanted.known_sums[at] = total
    elif size > wanted.threshold:
        count = int(found[COUNT])
        if count < wanted.heap_id.shape[0] or size > abs(wanted.heap_value[0]):
            found[COUNT] = push(wanted.heap_id, wanted.heap_value, count, feature, total)
