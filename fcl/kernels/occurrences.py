"""Presence of patterns with wildcards anywhere in a window: a search in the tree of patterns.

**The tree.** A node is a pattern of ``span`` letters, counting wildcards, that ends in a letter. A child
appends any number of wildcards and one letter, so every pattern is exactly one node. A node's
*occurrences* are listed in the order of rows, and include the occurrences of its children. The sums of
positive and of negative residuals over the node's distinct rows therefore bound all sums below the node.

**Occurrences.** An occurrence is an int64 with the row in the bits from ROW_BIT on. Below the row are the
letters behind the first letter, four bits for each, the last letter lowest. A known letter sets one bit
(A the lowest); an unknown letter, or a place beyond the end of the row, sets no bit, and matches only a
wildcard. The bitwise or of the occurrences of a row thus shows which children the row has.

Codes of patterns are five codes (:mod:`fcl.kernels.kmers`). For columns and margins, windows have three
bits per letter, the first letter in the highest: 0-3, or 4 for no known letter. A *pattern* is a pair
(care, value) of such bit fields; it matches a window if ``window & care == value``. Kernels overwrite
their ``buffers``, which are :class:`fcl.kernels.bags.RowBuffers`.
"""

import numpy as np

from fcl.kernels.bags import LETTER_ROWS, reverse_complement, unpack_letters
from fcl.kernels.candidates import SKIPPED, VISITED, edge, take
from fcl.kernels.compilation import kernel
from fcl.kernels.ordered import first_from

#: The lowest bit of an occurrence's row; the bits below hold the nine letters behind the first letter.
ROW_BIT = 36
MOST_ROWS = 1 << (63 - ROW_BIT)
#: Fields of a node on the path of a search, int64 each. From CUTS on, five bounds delimit the lists of
#: the four children that are visited next.
SPAN, PREFIX, START, STOP, NEED, PLACE, LETTER, ALIVE, CUTS = range(9)
NODE = CUTS + 5


@kernel
def count_first(block, both, buffers, counts):
    """Add to ``counts``, int64 (4,), how many occurrences begin with each letter."""
    letters = buffers.letters
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for i in range(stop - start):
            for p in range(letters.shape[1]):
                letter = letters[i, p]
                if letter < 4:
                    counts[letter] += 1
                    if both:
                        counts[3 - letter] += 1


@kernel
def list_occurrences(block, d, both, first, buffers, out, count):
    """Append the occurrences of a letter in a block to a list, in the order of rows; returns its length.

    out : int64 (capacity,), the list; its first ``count`` items are kept.
    both : whether to list the occurrences in the reverse complements of the rows too.
    """
    letters = buffers.letters
    length = letters.shape[1]
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for i in range(stop - start):
            row = (block.first_row + start + i) << ROW_BIT
            for strand in range(2 if both else 1):
                window = 0
                for p in range(length):
                    letter = np.int64(letters[i, p if strand else length - 1 - p])
                    if strand and letter < 4:
                        letter = 3 - letter
                    if letter == first:
                        out[count] = row | window
                        count += 1
                    # at the next position, this letter is the first behind
                    bit = (1 << letter) if letter < 4 else 0
                    window = ((bit << (4 * (d - 1))) | window) >> 4
    return count


# -- the search --------------------------------------------------------------------------------


@kernel
def _add_row(seen, x, up, down):
    """Add x to the sums of the children whose bits are set: to ``up`` if x > 0, else to ``down``."""
    out = up if x > 0 else down
    for j in range(up.shape[0]):
        out[j] += x if (seen >> j) & 1 else 0


@kernel
def _expand_last(occurrences, need, r, up, down):
    """Write the sums of the four children whose letter has the last place: half of all work is here."""
    u0 = u1 = u2 = u3 = 0
    d0 = d1 = d2 = d3 = 0
    last = -1
    seen = 0
    x = 0
    for window in occurrences:
        if window & need != need:
            continue
        row = window >> ROW_BIT
        if row != last:
            last = row
            seen = 0
            x = r[row]
        new = window & ~seen
        seen |= window
        above, below = max(x, 0), min(x, 0)
        u0 += above if new & 1 else 0
        u1 += above if new & 2 else 0
        u2 += above if new & 4 else 0
        u3 += above if new & 8 else 0
        d0 += below if new & 1 else 0
        d1 += below if new & 2 else 0
        d2 += below if new & 4 else 0
        d3 += below if new & 8 else 0
    up[0], up[1], up[2], up[3] = u0, u1, u2, u3
    down[0], down[1], down[2], down[3] = d0, d1, d2, d3


@kernel
def expand(occurrences, node, d, r, sums):
    """Write sums for all children of a node: of positive and of negative r over their distinct rows.

    node : int64 (NODE,); its occurrences are the items of its list with all bits of NEED set.
    r : int64 (n_rows,).
    sums : int64 (2, 4 d); the child with the letter c, and q letters behind c, has the index 4 q + c.
    """
    children = 4 * (d - node[SPAN])
    need = node[NEED]
    up, down = sums[0, :children], sums[1, :children]
    up[:] = 0
    down[:] = 0
    if children == 4:
        _expand_last(occurrences[node[START] : node[STOP]], need, r, up, down)
        return
    last = -1
    seen = 0
    for e in range(node[START], node[STOP]):
        window = occurrences[e]
        if window & need != need:
            continue
        row = window >> ROW_BIT
        if row != last:
            if last >= 0 and r[last] != 0:
                _add_row(seen, r[last], up, down)
            last = row
            seen = 0
        seen |= window
    if last >= 0 and r[last] != 0:
        _add_row(seen, r[last], up, down)


@kernel
def distinct_sum(occurrences, n, r):
    """The sum of r, int64, over the distinct rows of a list."""
    total = 0
    last = -1
    for e in range(n):
        row = occurrences[e] >> ROW_BIT
        if row != last:
            last = row
            total += r[row]
    return total


@kernel
def _split(occurrences, node, q, alive, cursors):
    """List the occurrences of the children whose letter has q letters behind it, child by child.

    The lists begin at ``node[CUTS]``; the other cuts are set to their ends, or to -1 if there is no room.
    alive : bit c is set to list the child with the letter c.  cursors : int64 (9,), overwritten.
    """
    need, shift = node[NEED], 4 * q
    a = c = g = t = 0
    for e in range(node[START], node[STOP]):
        window = occurrences[e]
        if window & need == need:
            bits = (window >> shift) & alive
            a += bits & 1
            c += (bits >> 1) & 1
            g += (bits >> 2) & 1
            t += (bits >> 3) & 1
    cuts = node[CUTS:]
    if cuts[0] + a + c + g + t >= occurrences.shape[0]:
        cuts[1:] = -1
        return
    cuts[1] = cuts[0] + a
    cuts[2] = cuts[1] + c
    cuts[3] = cuts[2] + g
    cuts[4] = cuts[3] + t
    # no branch, since it would be mispredicted three times in four: other items go behind the lists
    cursors[0] = cuts[4]
    for letter in range(4):
        cursors[1 << letter] = cuts[letter]
    for e in range(node[START], node[STOP]):
        window = occurrences[e]
        bits = (window >> shift) & alive if window & need == need else 0
        at = cursors[bits]
        occurrences[at] = window
        cursors[bits] = at + (1 if bits else 0)


@kernel
def search(occurrences, d, both, r, low, high, nodes, sums, level, work, wanted):
    """Visit the patterns of a part of the tree that can exceed a threshold, depth first.

    A subtree is skipped if its bound exceeds neither threshold nor floor, unless it contains a known
    pattern. Returns the level to continue at, or -1 at the end.

    occurrences : the list of the first node, followed by room for the lists of the nodes on the path. A
        node whose list does not fit is read from its parent's list.
    both : whether the list is of both strands; of a pattern and its reverse complement, only the pattern
        with the smaller code is then taken.
    low, high : codes of the part; children of the first node outside this range are not visited.
    r : int64 (n_rows,), the residuals in steps.
    nodes, sums : int64 (d, NODE), int64 (d, 2, 4 d): the path, and the sums of its nodes' children. At
        the start, the first node is a letter with sums already made, PLACE d - 1 and LETTER 4.
    level : index in the path at which to continue, 0 at the start.
    work : approximate number of steps after which the search pauses.
    wanted : :class:`fcl.kernels.candidates.Wanted`.
    """
    cursors = np.empty(9, np.int64)
    while level >= 0 and work > 0:
        node = nodes[level]
        span = node[SPAN]
        if node[PLACE] < 0:  # the node is new
            expand(occurrences, node, d, r, sums[level])
            work -= node[STOP] - node[START]
            node[PLACE], node[LETTER] = d - span, 4
        if node[LETTER] == 4:  # go to the next place
            node[PLACE] -= 1
            q = node[PLACE]
            if q < 0:
                level -= 1
                continue
            patterns = 5**q
            prefix = ((node[PREFIX] + 1) * 5 ** (d - 1 - span - q) - 1) * 5
            alive = 0
            for letter in range(4):
                code = (prefix + letter + 1) * patterns - 1
                if level == 0 and not low <= code < high:
                    continue
                up, down = sums[level, 0, 4 * q + letter], sums[level, 1, 4 * q + letter]
                if not both or code <= reverse_complement(code, d, 5):
                    wanted.found[VISITED] += 1.0
                    take(code, up + down, wanted)
                if q == 0:
                    continue
                bound = max(up, -down)
                known = wanted.known
                inside = first_from(known, code) - first_from(known, (prefix + letter) * patterns)
                if bound <= edge(wanted) and inside == 0:
                    wanted.found[SKIPPED] = max(wanted.found[SKIPPED], float(bound))
                else:
                    alive |= 1 << letter
            work -= 16
            node[ALIVE] = alive
            node[LETTER] = 0 if alive else 4
            if alive:
                _split(occurrences, node, q, alive, cursors)
                work -= 2 * (node[STOP] - node[START])
            continue
        letter, q = node[LETTER], node[PLACE]
        node[LETTER] += 1
        if (node[ALIVE] >> letter) & 1 == 0:
            continue
        level += 1
        below = nodes[level]
        below[SPAN] = d - q
        below[PREFIX] = ((node[PREFIX] + 1) * 5 ** (d - 1 - span - q) - 1) * 5 + letter
        below[NEED] = node[NEED] | (1 << (4 * q + letter))
        below[PLACE] = -1
        if node[CUTS + 4] < 0:
            below[START], below[STOP], below[CUTS] = node[START], node[STOP], node[CUTS]
        else:
            below[START], below[STOP] = node[CUTS + letter], node[CUTS + letter + 1]
            below[CUTS] = node[CUTS + 4]
    return level


# -- columns and margins -----------------------------------------------------------------------


@kernel
def _columns_of_windows(letters, n, d, out):
    """Write the windows at every letter of n rows to ``out`` uint32 (L, LETTER_ROWS)."""
    length = letters.shape[1]
    top = np.uint32(3 * (d - 1))
    beyond = np.uint32(0)
    for _ in range(d):
        beyond = np.uint32((beyond << np.uint32(3)) | np.uint32(4))
    for p in range(length - 1, -1, -1):
        for i in range(n):
            behind = out[p + 1, i] if p + 1 < length else beyond
            out[p, i] = (np.uint32(letters[i, p]) << top) | (behind >> np.uint32(3))
        for i in range(n, LETTER_ROWS):
            out[p, i] = beyond


@kernel
def _find_patterns(windows, cares, values, j, hits):
    """Write 1 to ``hits`` uint32 (LETTER_ROWS,) where one of the patterns of a feature occurs, else 0."""
    hits[:] = 0
    for strand in range(cares.shape[0]):
        care, value = cares[strand, j], values[strand, j]
        if strand and care == cares[0, j] and value == values[0, j]:
            continue
        for p in range(windows.shape[0]):
            row = windows[p]
            for i in range(LETTER_ROWS):
                hits[i] |= np.uint32((row[i] & care) == value)


@kernel
def add_margins(block, d, cares, values, weights, buffers, m):
    """Add the weights of the features that each row has to its margin, in place.

    cares, values : uint32 (1 or 2, k), the patterns of each feature, one for each strand.
    """
    windows, hits = buffers.windows, buffers.hits
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        _columns_of_windows(buffers.letters, stop - start, d, windows)
        for j in range(weights.shape[0]):
            _find_patterns(windows, cares, values, j, hits)
            for i in range(stop - start):
                if hits[i]:
                    m[start + i] += weights[j]


@kernel
def mark_patterns(block, d, cares, values, buffers, bits):
    """Write bitmaps of features to ``bits`` uint64 (k, >= ceil(n_rows / 64)); see :func:`add_margins`."""
    windows, hits = buffers.windows, buffers.hits
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        _columns_of_windows(buffers.letters, stop - start, d, windows)
        for j in range(bits.shape[0]):
            _find_patterns(windows, cares, values, j, hits)
            word = np.uint64(0)
            for i in range(LETTER_ROWS):
                word |= np.uint64(hits[i]) << np.uint64(i)
            bits[j, start >> 6] = word
