"""The largest of many integer sums: candidates, the largest size, and the excess over a floor."""

from fcl.kernels import kernel

#: What has been found: float64 each. See :func:`take`.
LARGEST, SKIPPED, COUNT, EXCESS, VISITED = range(5)
FOUND = 5
#: Integers of this size stand for "more than any sum".
ENDLESS = 1 << 62


@kernel
def push(heap_id, heap_value, count, feature, value):
    """Keep the largest |value| in a heap whose root is the smallest kept. Returns the count.

    Ties are settled by the order of arrival alone, hence the same in every run.
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
def first_of(known, feature):
    """How many of the sorted features are below another."""
    low, high = 0, known.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if known[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def edge(threshold, floor, heap_value, found):
    """The size up to which a sum is of no interest, int64."""
    if found[COUNT] == heap_value.shape[0]:
        threshold = max(threshold, abs(heap_value[0]))
    return threshold if floor >= threshold else int(floor)


@kernel
def take(feature, total, threshold, floor, known, known_sums, heap_id, heap_value, found):
    """Take the sum of a feature into account.

    threshold : int64, sums of at most this size need not be kept.
    floor : float64, what sizes exceed it by counts in the excess; infinite: nothing does.
    known : int64, sorted: features whose sums go to ``known_sums``, and are not kept.
    heap_id, heap_value : int64 (capacity,): the largest of all others, as a heap.
    found : float64 (FOUND,): largest size, largest bound of what was skipped, number of kept ones, sum of
        max(0, size - floor)^2, number of features whose sum was made, which the caller counts.
    """
    size = abs(total)
    found[LARGEST] = max(found[LARGEST], float(size))
    if size > floor:
        found[EXCESS] += (size - floor) * (size - floor)
    at = first_of(known, feature)
    if at < known.shape[0] and known[at] == feature:
        known_sums[at] = total
    elif size > threshold:
        count = int(found[COUNT])
        if count < heap_id.shape[0] or size > abs(heap_value[0]):
            found[COUNT] = push(heap_id, heap_value, count, feature, total)
