"""Presence of patterns with wildcards anywhere in a window: a search in the tree of patterns.

**The tree.** A node is a pattern that ends in a letter, of ``span`` letters with the wildcards between;
its children have some wildcards and one more letter. So every pattern is one node. A node's
*occurrences* are listed in the order of rows. Those of its children are among them, and so are their
rows: the positive and the negative residuals of its distinct rows bound all sums below it.

**Occurrences.** int64: the row in the bits from ROW_BIT on, below it the letters behind the first, four
bits each, the last the lowest. A letter has its one bit (A the lowest), an unknown one or what lies
beyond the end of the row none, which a wildcard alone matches. So the bits of the occurrences of a row
or-ed together are the children that the row has.

Codes of patterns are five codes (:mod:`fcl.kernels.kmers`). For columns and margins windows have three
bits a letter instead, the first in the highest: 0-3, or 4 for none; a *pattern* is a pair (care, value)
of such bit fields and matches a window when ``window & care == value``. Buffers are
:class:`fcl.kernels.bags.RowBuffers`, overwritten.
"""

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.bags import LETTER_ROWS, reverse_complement, unpack_letters
from fcl.kernels.candidates import SKIPPED, VISITED, edge, first_of, take

#: Occurrences have their row from this bit on; below it is room for the nine letters behind the first.
ROW_BIT = 36
MOST_ROWS = 1 << (63 - ROW_BIT)
#: What a node on the path of a search consists of; int64 each. CUTS are the bounds of the lists of the
#: four children that are visited next.
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
    """List the occurrences of a letter in a block, in the order of rows, behind ``count`` others.

    Returns their number with the others.

    out : int64 (room for all,).
    both : whether to list those of the other strand too, read backwards.
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
                    # one letter on: what was the first is behind it
                    bit = (1 << letter) if letter < 4 else 0
                    window = ((bit << (4 * (d - 1))) | window) >> 4
    return count


# -- the search --------------------------------------------------------------------------------


@kernel
def _add_row(seen, x, up, down):
    """Add x to the sums of the children whose bits are set: to ``up`` if it is positive."""
    out = up if x > 0 else down
    for j in range(up.shape[0]):
        out[j] += x if (seen >> j) & 1 else 0


@kernel
def _expand_last(occurrences, need, r, up, down):
    """The sums of the four children with nothing behind them: half of all the work is there."""
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
    """Write the sums of all children of a node: positive and negative r of their distinct rows.

    node : int64 (NODE,); its occurrences are those of its list that have the bits NEED.
    r : int64 (n_rows,).
    sums : int64 (2, 4 d); that of the child with the letter c, and q letters behind it, is 4 q + c.
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
    """List the occurrences of some children of a node: those with q letters left behind theirs.

    alive : bit c is set for the child with the letter c.  Writes behind ``node[CUTS]``, sets the other
    cuts; where there is no room for that, they are -1.  cursors : int64 (9,), overwritten.
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
    # without a branch, which would be guessed wrong three times in four; what is not wanted goes behind
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
    pattern. Returns the next level, -1 at the end.

    occurrences : the list of the first node, and room behind it for those of the nodes on the path. A
        node for which it does not suffice is read from the list above.
    both : of a pattern and its reverse complement the one of the smaller code alone is taken; the list
        is of both strands.
    low, high : codes of the part; children of the first node outside this range are not visited.
    r : int64 (n_rows,), the residuals in steps.
    nodes, sums : int64 (d, NODE), int64 (d, 2, 4 d): the path, and the sums of its nodes' children. The
        first node is a letter, with the sums made already; at the start with PLACE d - 1 and LETTER 4.
    level : where on the path the search stands, at the start 0.
    work : number of steps after which the search pauses, approximately.
    wanted : :class:`fcl.kernels.candidates.Wanted`.
    """
    cursors = np.empty(9, np.int64)
    while level >= 0 and work > 0:
        node = nodes[level]
        span = node[SPAN]
        if node[PLACE] < 0:  # it is new
            expand(occurrences, node, d, r, sums[level])
            work -= node[STOP] - node[START]
            node[PLACE], node[LETTER] = d - span, 4
        if node[LETTER] == 4:  # to the next place
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
                inside = first_of(known, code) - first_of(known, (prefix + letter) * patterns)
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
    """Write the bitmaps of features to ``bits`` uint64 (k, >= ceil(n_rows / 64)); see above."""
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
