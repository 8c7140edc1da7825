"""Positional k-mers: codes of windows, tables of residuals, the scan of all patterns, margins.

**Prepared rows.** A block of m rows of L letters is kept as 2-bit planes: ``planes`` uint8
(ceil(L / 4), m); byte ``planes[g, i]`` holds the letters 4 g .. 4 g + 3 of row i, the first in the
highest bits. So the code of a window is a shift and a mask of up to four neighbouring planes, read in
streams. Unknown letters are stored as 0 (A) and listed by position: ``unknown_rows`` int32, the
rows of position p at ``unknown_start[p] : unknown_start[p + 1]`` (int64 (L + 1,)).

**Codes.** The window of d letters at position k has the code sum_t letter_t 4^(d - 1 - t), the first
letter most significant; a *pattern* is a pair (care, value) of such bit fields: it matches a code
when ``code & care == value``. Wildcard letters have 0 in both.
"""

import numpy as np

from fcl.kernels import kernel

#: Rows for which codes are made at a time: they stay in the first-level cache.
CHUNK = 2048
#: Letters whose patterns are expanded together at the bottom of the tree: 4^4 cells to 5^4 patterns.
FLAT_LETTERS = 4


@kernel
def pack_planes(codes, planes):
    """Write the 2-bit planes of a block of rows; unknown letters (code 4) become 0.

    codes : uint8 (m, L), 0-4.   planes : uint8 (ceil(L / 4), >= m).
    """
    rows, length = codes.shape
    for start in range(0, rows, CHUNK):
        stop = min(rows, start + CHUNK)
        for g in range((length + 3) // 4):
            for i in range(start, stop):
                byte = np.uint8(0)
                for t in range(4):
                    p = 4 * g + t
                    letter = codes[i, p] if p < length else np.uint8(0)
                    byte = np.uint8((byte << 2) | (letter & 3))
                planes[g, i] = byte


@kernel
def list_unknown(codes, unknown_start, unknown_rows):
    """Write the list of unknown letters, by position, of a block of rows.

    With an empty ``unknown_rows`` only the counts are made (``unknown_start``).
    """
    rows, length = codes.shape
    unknown_start[:] = 0
    for i in range(rows):
        for p in range(length):
            if codes[i, p] > 3:
                unknown_start[p + 1] += 1
    for p in range(length):
        unknown_start[p + 1] += unknown_start[p]
    if unknown_rows.shape[0] == 0:
        return
    cursor = unknown_start[:-1].copy()
    for i in range(rows):
        for p in range(length):
            if codes[i, p] > 3:
                unknown_rows[cursor[p]] = i
                cursor[p] += 1


@kernel
def window_codes(planes, k, d, start, stop, out):
    """Write the codes of the windows of d letters at position k, rows start .. stop, to ``out``."""
    g = k >> 2
    offset = k & 3
    n_planes = (offset + d + 3) >> 2
    shift = np.uint32(2 * (4 * n_planes - offset - d))
    mask = np.uint32((1 << (2 * d)) - 1)
    n = stop - start
    if n_planes == 1:
        p0 = planes[g, start:stop]
        for i in range(n):
            out[i] = (np.uint32(p0[i]) >> shift) & mask
    elif n_planes == 2:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        for i in range(n):
            wide = (np.uint32(p0[i]) << np.uint32(8)) | np.uint32(p1[i])
            out[i] = (wide >> shift) & mask
    elif n_planes == 3:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        p2 = planes[g + 2, start:stop]
        for i in range(n):
            wide = (
                (np.uint32(p0[i]) << np.uint32(16))
                | (np.uint32(p1[i]) << np.uint32(8))
                | np.uint32(p2[i])
            )
            out[i] = (wide >> shift) & mask
    else:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        p2 = planes[g + 2, start:stop]
        p3 = planes[g + 3, start:stop]
        for i in range(n):
            wide = (
                (np.uint32(p0[i]) << np.uint32(24))
                | (np.uint32(p1[i]) << np.uint32(16))
                | (np.uint32(p2[i]) << np.uint32(8))
                | np.uint32(p3[i])
            )
            out[i] = (wide >> shift) & mask


@kernel
def code_of_row(planes, k, d, i):
    """The code of the window of d letters at position k of row i."""
    code = np.uint32(0)
    for t in range(d):
        p = k + t
        letter = (planes[p >> 2, i] >> np.uint8(2 * (3 - (p & 3)))) & np.uint8(3)
        code = (code << np.uint32(2)) | np.uint32(letter)
    return code


@kernel
def unknown_windows(unknown_start, unknown_rows, k, d, masks, rows_out):
    """Find the rows whose window of d letters at position k has unknown letters.

    masks : uint32 (m,), all 0 on entry; gets the bit field (3 for each unknown letter, as in a code).
    rows_out : int32, room for all; the rows in the order in which they are met. Returns their count.
    The caller sets ``masks[rows_out[:count]]`` to 0 again.
    """
    count = 0
    for t in range(d):
        bits = np.uint32(3 << (2 * (d - 1 - t)))
        for e in range(unknown_start[k + t], unknown_start[k + t + 1]):
            row = unknown_rows[e]
            if masks[row] == 0:
                rows_out[count] = row
                count += 1
            masks[row] |= bits
    return count


@kernel
def add_to_table(planes, k, d, n_rows, r, codes, table):
    """Add r_i to ``table[code of the window at k]`` for the rows of a block, in place."""
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        part = r[start:stop]
        for i in range(stop - start):
            table[codes[i]] += part[i]


@kernel
def take_unknown(
    planes, unknown_start, unknown_rows, k, d, r, masks, rows, table, items, code, mask, value
):
    """Move the windows with unknown letters out of the table into a list of items.

    The fast loop has added them where an A stands for each unknown letter. Windows whose first
    letter is unknown match no pattern and are dropped. ``items`` counts what is in the lists
    (code uint32, mask uint32, value float64); returns the new count.
    """
    count = unknown_windows(unknown_start, unknown_rows, k, d, masks, rows)
    first = np.uint32(3 << (2 * (d - 1)))
    for e in range(count):
        row = rows[e]
        c = code_of_row(planes, k, d, row)
        table[c] -= r[row]
        if masks[row] & first == 0:
            code[items] = c
            mask[items] = masks[row]
            value[items] = r[row]
            items += 1
        masks[row] = 0
    return items


@kernel
def pattern_sums(table, n_items, code, mask, value, cares, values, d, out):
    """Write the sum of all windows that match each pattern: table cells, and items with unknowns."""
    full = (1 << (2 * d)) - 1
    for j in range(cares.shape[0]):
        free = full & ~cares[j]
        fixed = values[j]
        total = 0.0
        sub = 0
        while True:
            total += table[fixed | sub]
            sub = (sub - free) & free
            if sub == 0:
                break
        for e in range(n_items):
            if np.int64(mask[e]) & cares[j] == 0 and np.int64(code[e]) & cares[j] == fixed:
                total += value[e]
        out[j] = total


@kernel
def _both_sums(cells, start, size):
    """Sum of the positive and of the absolute negative entries of cells[start : start + size]."""
    p0 = p1 = p2 = p3 = 0.0
    a0 = a1 = a2 = a3 = 0.0
    i = start
    stop = start + size
    while i + 4 <= stop:
        x0, x1, x2, x3 = cells[i], cells[i + 1], cells[i + 2], cells[i + 3]
        p0 += x0
        p1 += x1
        p2 += x2
        p3 += x3
        a0 += abs(x0)
        a1 += abs(x1)
        a2 += abs(x2)
        a3 += abs(x3)
        i += 4
    while i < stop:
        p0 += cells[i]
        a0 += abs(cells[i])
        i += 1
    total = (p0 + p1) + (p2 + p3)
    absolute = (a0 + a1) + (a2 + a3)
    return 0.5 * (absolute + total), 0.5 * (absolute - total)


@kernel
def _push(heap_id, heap_value, count, feature, gradient):
    """Keep the largest |gradient| in a heap whose root is the smallest kept. Returns the count.

    Ties are settled by the order of arrival alone, hence the same in every run.
    """
    capacity = heap_id.shape[0]
    if count < capacity:
        i = count
        count += 1
        while i > 0:
            parent = (i - 1) >> 1
            if abs(heap_value[parent]) <= abs(gradient):
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
            if abs(heap_value[child]) >= abs(gradient):
                break
            heap_id[i] = heap_id[child]
            heap_value[i] = heap_value[child]
            i = child
    heap_id[i] = feature
    heap_value[i] = gradient
    return count


@kernel
def _expand_axes(cells, start, letters, radix, flat_a, flat_b):
    """Sum out wildcards of radix^letters cells, axis by axis from the last: 5^letters sums.

    Returns 0 when they end in ``flat_a``, 1 for ``flat_b``.
    """
    inner = 1
    outer = radix**letters
    for i in range(outer):
        flat_a[i] = cells[start + i]
    into_b = True
    for _ in range(letters):
        outer //= radix
        source = flat_a if into_b else flat_b
        target = flat_b if into_b else flat_a
        for o in range(outer):
            s = o * radix * inner
            t = o * 5 * inner
            for i in range(inner):
                x0 = source[s + i]
                x1 = source[s + inner + i]
                x2 = source[s + 2 * inner + i]
                x3 = source[s + 3 * inner + i]
                total = (x0 + x1) + (x2 + x3)
                if radix == 5:
                    total += source[s + 4 * inner + i]
                target[t + i] = x0
                target[t + inner + i] = x1
                target[t + 2 * inner + i] = x2
                target[t + 3 * inner + i] = x3
                target[t + 4 * inner + i] = total
        into_b = not into_b
        inner *= 5
    return 0 if into_b else 1


@kernel
def _add_item_to_flat(flat, letters, code, mask, value):
    """Add an item to every pattern of the last ``letters`` letters that it matches, in place.

    An unknown letter matches the wildcard alone, a known one itself and the wildcard.
    """
    base = 0  # the pattern with every known letter named
    n_known = 0
    power = 1
    for t in range(letters):  # from the last letter backwards
        shift = 2 * t
        if (mask >> shift) & 3:
            base += 4 * power
        else:
            base += ((code >> shift) & 3) * power
            n_known += 1
        power *= 5
    for choice in range(1 << n_known):
        index = base
        bit = 0
        power = 1
        for t in range(letters):
            shift = 2 * t
            if (mask >> shift) & 3 == 0:
                if (choice >> bit) & 1:
                    index += (4 - ((code >> shift) & 3)) * power
                bit += 1
            power *= 5
        flat[index] += value


@kernel
def scan_size(d, radix):
    """Number of float64 cells that a scan of patterns of d letters needs (the table included)."""
    size = radix**d
    for level in range(2, d + 1):
        size += radix ** (d - level)
    return size


@kernel
def five_letter_table(table, d, n_items, code, mask, value, out):
    """Write the table over five letters: unknown is the fifth.

    table : float64 (>= 4^d,), of windows without unknown letters; items as in :func:`take_unknown`.
    out : float64 (>= 5^d,); its first 5^d cells are overwritten.
    """
    out[: 5**d] = 0.0
    for c in range(1 << (2 * d)):
        at = 0
        for t in range(d):
            at = at * 5 + ((c >> (2 * (d - 1 - t))) & 3)
        out[at] = table[c]
    for e in range(n_items):
        at = 0
        for t in range(d):
            shift = 2 * (d - 1 - t)
            unknown = (np.int64(mask[e]) >> shift) & 3 != 0
            at = at * 5 + (4 if unknown else (np.int64(code[e]) >> shift) & 3)
        out[at] += value[e]


@kernel
def scan_patterns(
    cells,
    d,
    radix,
    n_items,
    code,
    mask,
    value,
    stack,
    first_id,
    threshold,
    heap_id,
    heap_value,
    flats,
    out,
):
    """Visit the sums of all 4 * 5^(d-1) patterns of one position that can exceed a threshold.

    The tree of patterns is walked depth first, one letter a level (A, C, G, T, wildcard; the first
    letter is no wildcard). A node holds the table of the letters that follow its prefix. All its
    leaves are sums over subsets of that table, so the larger of its positive and its negative mass
    bounds them: where the bound is no more than the threshold the whole subtree is skipped.

    cells : float64 (scan_size(d, radix),): the table in the first radix^d; the rest is overwritten.
    radix : 4, or 5 for a table in which unknown is a letter (:func:`five_letter_table`): it has no
        pattern of its own and adds to the wildcard's.
    code, mask, value : items with unknown letters (:func:`take_unknown`), not in the table; none
        with radix 5. A few are cheaper to carry down the tree than a larger table is to sum.
    stack : int32 (>= (d + 1) * n_items,), overwritten.
    threshold : sums of at most this magnitude need not be found; it rises to the smallest kept
        one as soon as the heap is full.
    heap_id, heap_value : int64, float64 (capacity,): the largest sums, as a heap.
    flats : float64 (2, 5^FLAT_LETTERS), overwritten.
    out : float64 (4,): largest |sum| met, largest bound of what was skipped, number of kept ones,
        number of patterns visited. The largest |sum| over all patterns is at most the larger of
        the first two, and equal to the first where that exceeds the second.
    """
    largest = 0.0
    skipped = 0.0
    visited = 0
    count = 0
    capacity = heap_id.shape[0]

    flat_letters = min(FLAT_LETTERS, d - 1)
    bottom = d - flat_letters  # level of the nodes that are expanded flat
    start = np.zeros(d + 2, np.int64)  # of the node's cells
    child = np.zeros(d + 2, np.int64)  # next child to visit
    prefix = np.zeros(d + 2, np.int64)  # in base 5
    list_start = np.zeros(d + 2, np.int64)  # the node's items: stack[list_start : list_stop]
    list_stop = np.zeros(d + 2, np.int64)
    wild_start = np.zeros(d + 2, np.int64)  # room for the wildcard child of each level
    room = radix**d
    for level in range(2, d + 1):
        wild_start[level] = room
        room += radix ** (d - level)
    leaves = 1
    for _ in range(flat_letters):
        leaves *= 5

    for e in range(n_items):
        stack[e] = e
    list_stop[0] = n_items
    level = 0
    while level >= 0:
        n_children = 4 if level == 0 else 5
        a = child[level]
        if a == n_children:
            level -= 1
            continue
        child[level] = a + 1
        below = d - level - 1  # letters after this one
        size = radix**below
        shift = 2 * below
        rest = np.uint32((1 << shift) - 1)
        here = np.uint32(3)
        into = list_stop[level]
        first = into
        if a < 4:
            at = start[level] + a * size
            for e in range(list_start[level], list_stop[level]):
                item = stack[e]
                if (mask[item] >> shift) & here == 0 and (code[item] >> shift) & here == a:
                    stack[into] = item
                    into += 1
        else:
            at = wild_start[level + 1]
            s = start[level]
            for i in range(size):
                cells[at + i] = (cells[s + i] + cells[s + size + i]) + (
                    cells[s + 2 * size + i] + cells[s + 3 * size + i]
                )
            if radix == 5:
                for i in range(size):
                    cells[at + i] += cells[s + 4 * size + i]
            for e in range(list_start[level], list_stop[level]):
                item = stack[e]
                if mask[item] & rest == 0:  # its last unknown letter is behind: an ordinary cell
                    cells[at + np.int64(code[item] & rest)] += value[item]
                else:
                    stack[into] = item
                    into += 1
        up, down = _both_sums(cells, at, size)
        for e in range(first, into):
            x = value[stack[e]]
            if x > 0.0:
                up += x
            else:
                down -= x
        bound = max(up, down)
        if count == capacity:
            threshold = max(threshold, abs(heap_value[0]))
        if bound <= threshold:
            skipped = max(skipped, bound)
            continue
        if level + 1 < bottom:
            level += 1
            start[level] = at
            child[level] = 0
            prefix[level] = prefix[level - 1] * 5 + a
            list_start[level] = first
            list_stop[level] = into
            continue

        which = _expand_axes(cells, at, flat_letters, radix, flats[0], flats[1])
        flat = flats[which]
        for e in range(first, into):
            item = stack[e]
            _add_item_to_flat(
                flat, flat_letters, np.int64(code[item]), np.int64(mask[item]), value[item]
            )
        base = first_id + (prefix[level] * 5 + a) * leaves
        visited += leaves
        for i in range(leaves):
            x = abs(flat[i])
            if x > threshold:
                largest = max(largest, x)
                if count < capacity or x > abs(heap_value[0]):
                    count = _push(heap_id, heap_value, count, base + i, flat[i])
                if count == capacity:
                    threshold = max(threshold, abs(heap_value[0]))
            elif x > skipped:
                skipped = x
    out[0] = largest
    out[1] = skipped
    out[2] = count
    out[3] = visited


@kernel
def fold_table(cares, values, weights, d, table):
    """Write the margin of every code: the sum of the weights of the patterns that it matches.

    cares, values : int64 (k,), weights : float64 (k,), table : float64 (4^d,), overwritten.
    """
    table[:] = 0.0
    full = (1 << (2 * d)) - 1
    for j in range(cares.shape[0]):
        free = full & ~cares[j]
        w = weights[j]
        sub = 0
        while True:
            table[values[j] | sub] += w
            sub = (sub - free) & free
            if sub == 0:
                break


@kernel
def add_margins(planes, k, d, n_rows, table, codes, m):
    """Add ``table[code of the window at k]`` to the margins of a block of rows, in place."""
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        part = m[start:stop]
        for i in range(stop - start):
            part[i] += table[codes[i]]


@kernel
def add_patterns(planes, k, d, n_rows, cares, values, weights, codes, m):
    """Add to the margins of a block the weights of the patterns that match at k, in place.

    As :func:`add_margins` without a table: cheaper where 4^d is large and the patterns are few.
    """
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        part = m[start:stop]
        for j in range(cares.shape[0]):
            care = np.uint32(cares[j])
            fixed = np.uint32(values[j])
            w = weights[j]
            for i in range(stop - start):
                part[i] += w if (codes[i] & care) == fixed else 0.0


@kernel
def mend_margins(planes, unknown_start, unknown_rows, k, d, cares, values, weights, masks, rows, m):
    """Correct margins at position k for the windows with unknown letters, in place.

    The fast loops took an A for each unknown letter: what that added is taken back, and the weights
    of the patterns with wildcards at all of them are added.
    """
    count = unknown_windows(unknown_start, unknown_rows, k, d, masks, rows)
    for e in range(count):
        row = rows[e]
        code = np.int64(code_of_row(planes, k, d, row))
        unknown = np.int64(masks[row])
        right = 0.0
        wrong = 0.0
        for j in range(cares.shape[0]):
            if code & cares[j] == values[j]:
                wrong += weights[j]
                if unknown & cares[j] == 0:
                    right += weights[j]
        m[row] += right - wrong
        masks[row] = 0


@kernel
def match_bits(
    planes, unknown_start, unknown_rows, k, d, n_rows, cares, values, codes, masks, rows, bits
):
    """Write, for each pattern at position k, the bitmap of the rows of a block that match it.

    cares, values : int64 (c,);  bits : uint64 (c, >= ceil(n_rows / 64)), overwritten; row i is bit
    i % 64 of word i // 64.
    """
    n_words = (n_rows + 63) // 64
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        for i in range(stop - start, CHUNK):
            codes[i] = np.uint32(0xFFFFFFFF)
        first = start // 64
        n_here = (stop - start + 63) // 64
        for c in range(cares.shape[0]):
            care = np.uint32(cares[c])
            fixed = np.uint32(values[c])
            for w in range(n_here):
                word = np.uint64(0)
                for t in range(64):
                    hit = (codes[64 * w + t] & care) == fixed
                    word |= np.uint64(hit) << np.uint64(t)
                bits[c, first + w] = word
    if n_rows % 64:
        keep = (np.uint64(1) << np.uint64(n_rows % 64)) - np.uint64(1)
        for c in range(cares.shape[0]):
            bits[c, n_words - 1] &= keep
    count = unknown_windows(unknown_start, unknown_rows, k, d, masks, rows)
    for e in range(count):
        row = rows[e]
        for c in range(cares.shape[0]):
            if np.int64(masks[row]) & cares[c] != 0:
                bits[c, row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
        masks[row] = 0
