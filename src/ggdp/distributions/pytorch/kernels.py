# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, no-any-return"
"""Triton kernels: draw and add in one pass over memory.

Every element owns one word in each of three parallel keystreams ("domains" 0, 1, 2: the words a, b, c of
`ggdp.distributions.quantile_table`), so a result depends on key and position alone, never on the launch.
Domain 0 is computed for every element. float32 arithmetic computes domain 1 only in the few programs that
hold an element with u < 2^-14, and domain 2 only where one has u < 2^-31.

Keystreams come from Philox-4x32-10 (blocks of four words, statistical quality), where element n owns word n,
or from ChaCha20 (blocks of sixteen, cryptographic), dealt out as `streams.CHACHA_SPAN` says.
"""

import triton
import triton.language as tl

from ggdp.distributions import quantile_table as layout

_SIGN = tl.constexpr(0x80000000)
_NO_SIGN = tl.constexpr(0x7FFFFFFF)
_TAIL = tl.constexpr(1 << 30)
_FINE_TAIL = tl.constexpr(layout.FINE_TAIL)
# Rows start at the piece of f = 2^LOWEST_EXPONENT; a row is twice the piece plus the end.
_FIRST_ROW_32 = tl.constexpr(2 * ((127 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS))
_FIRST_ROW_64 = tl.constexpr(2 * ((1023 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS))
_SHRINK_32 = tl.constexpr(layout.SHRINK_FLOAT32 / 4)
_LARGEST_64 = tl.constexpr(layout.LARGEST_FLOAT64)
_WORD = tl.constexpr(2.0**-32)
_TWO_WORDS = tl.constexpr(2.0**-64)


@triton.jit
def rotate_left(x, NUM_BITS: tl.constexpr):
    """Rotate 32-bit words."""
    return (x << NUM_BITS) | (x >> (32 - NUM_BITS))


@triton.jit
def quarter_round(a, b, c, d):
    """Apply RFC 8439, section 2.1."""
    a += b
    d = rotate_left(d ^ a, 16)
    c += d
    b = rotate_left(b ^ c, 12)
    a += b
    d = rotate_left(d ^ a, 8)
    c += d
    b = rotate_left(b ^ c, 7)
    return a, b, c, d


@triton.jit
def chacha20_block(k0, k1, k2, k3, k4, k5, k6, k7, c0, c1, n0, n1):
    """Return the sixteen words of each block: RFC 8439, section 2.3, with c1 as the counter's high word."""
    zero = c0 ^ c0
    i0, i1, i2, i3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    i4, i5, i6, i7 = zero + k0, zero + k1, zero + k2, zero + k3
    i8, i9, i10, i11 = zero + k4, zero + k5, zero + k6, zero + k7
    i14, i15 = zero + n0, zero + n1
    x0, x1, x2, x3, x4, x5, x6, x7 = i0, i1, i2, i3, i4, i5, i6, i7
    x8, x9, x10, x11, x12, x13, x14, x15 = i8, i9, i10, i11, c0, c1, i14, i15
    for _ in range(10):
        x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    x0, x1, x2, x3, x4, x5, x6, x7 = x0 + i0, x1 + i1, x2 + i2, x3 + i3, x4 + i4, x5 + i5, x6 + i6, x7 + i7
    x8, x9, x10, x11, x12, x13 = x8 + i8, x9 + i9, x10 + i10, x11 + i11, x12 + c0, x13 + c1
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14 + i14, x15 + i15


@triton.jit
def join_four(w0, w1, w2, w3):
    """Return w0[0], w1[0], w2[0], w3[0], w0[1], ...: a thread keeps the words of its own blocks."""
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))


@triton.jit
def tail_place(a):
    """Return q for words of domain 0 in the tail, and something above every q for the others."""
    return (a & _NO_SIGN) ^ _TAIL


@triton.jit
def lowest_of_four(w0, w1, w2, w3):
    """Return, for each block, the lowest tail place of its four words."""
    left, right = tl.minimum(tail_place(w0), tail_place(w1)), tl.minimum(tail_place(w2), tail_place(w3))
    return tl.minimum(left, right)


@triton.jit
def chacha20_words(key, block, DOMAIN: tl.constexpr):
    """Return the four rows of the given 64-bit block numbers, and their lowest tail places."""
    k0, k1, k2, k3 = _word(key, 0), _word(key, 1), _word(key, 2), _word(key, 3)
    k4, k5, k6, k7 = _word(key, 4), _word(key, 5), _word(key, 6), _word(key, 7)
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    n0, n1 = _word(key, 8), _word(key, 9) | DOMAIN
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = chacha20_block(
        k0, k1, k2, k3, k4, k5, k6, k7, c0, c1, n0, n1
    )
    upper = tl.minimum(lowest_of_four(x0, x1, x2, x3), lowest_of_four(x4, x5, x6, x7))
    lower = tl.minimum(lowest_of_four(x8, x9, x10, x11), lowest_of_four(x12, x13, x14, x15))
    y0, y1 = join_four(x0, x1, x2, x3), join_four(x4, x5, x6, x7)
    y2, y3 = join_four(x8, x9, x10, x11), join_four(x12, x13, x14, x15)
    return (y0, y1, y2, y3), tl.minimum(upper, lower)


@triton.jit
def philox_block(k0, k1, c0, c1, c2, c3):
    """Return the four words of each block: Philox-4x32 of Salmon, Moraes, Dror and Shaw (2011), section 4.

    The products are taken in 64 bits, which costs half the multiplications of `tl.philox`.
    """
    for _ in tl.static_range(10):
        left, right = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (right >> 32).to(tl.uint32) ^ c1 ^ k0, (left >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = right.to(tl.uint32), left.to(tl.uint32)
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def philox_words(key, block, DOMAIN: tl.constexpr):
    """Do the same with Philox, whose blocks have one row; the upper half of its counter names the stream."""
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    zero = c0 ^ c0
    c2, c3 = zero + _word(key, 2), zero + (_word(key, 3) ^ DOMAIN)
    w0, w1, w2, w3 = philox_block(_word(key, 0), _word(key, 1), c0, c1, c2, c3)
    return (join_four(w0, w1, w2, w3),), lowest_of_four(w0, w1, w2, w3)


@triton.jit
def _word(key, INDEX: tl.constexpr):
    return tl.load(key + INDEX).to(tl.uint32, bitcast=True)


@triton.jit
def draw_words(key, block, DOMAIN: tl.constexpr, SECURE: tl.constexpr):
    """Return the rows of words of one domain, from the chosen cipher."""
    if SECURE:
        return chacha20_words(key, block, DOMAIN)
    else:
        return philox_words(key, block, DOMAIN)


@triton.jit
def evaluate_pieces(f, a, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr):
    """Return G at f by Horner's rule on its piece; the words a tell the sign and the end."""
    end = (a << 1) >> 31
    if f.dtype == tl.float64:
        bits = tl.minimum(f.to(tl.uint64, bitcast=True), _LARGEST_64)
        first_row = table - _FIRST_ROW_64
        row = ((bits >> 50).to(tl.uint32) << 1) | end
        t = ((bits & 0x3FFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True) - 1.125
    else:
        bits = f.to(tl.uint32, bitcast=True)
        first_row = table - _FIRST_ROW_32
        row = ((bits >> 21) << 1) | end
        t = ((bits & 0x1FFFFF) | 0x3F800000).to(tl.float32, bitcast=True) - 1.125
    value = tl.load(first_row + DEGREE * NUM_ROWS + row)
    for k in tl.static_range(DEGREE):
        value = value * t + tl.load(first_row + (DEGREE - 1 - k) * NUM_ROWS + row)
    if f.dtype == tl.float64:
        return tl.where(a >= _SIGN, -value, value)
    else:
        return (value.to(tl.uint32, bitcast=True) ^ (a & _SIGN)).to(tl.float32, bitcast=True)


@triton.jit
def draw_coarse(a, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr):
    """Turn words of domain 0 into noise in float32, for all but tail places below FINE_TAIL."""
    f = (a << 2).to(tl.float32) * _SHRINK_32 + 0.5
    return evaluate_pieces(f, a, table, DEGREE, NUM_ROWS)


@triton.jit
def draw_fine(a, b, c, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr):
    """Turn the words of all three domains into noise, in the precision of the table."""
    precision = table.dtype.element_ty
    q = ((a << 2) >> 2).to(precision)
    f = q + b.to(precision) * _WORD + (c.to(precision) + 0.5) * _TWO_WORDS
    return evaluate_pieces(f, a, table, DEGREE, NUM_ROWS)


@triton.jit
def write_row(target, first, num_elements, noise, NUM_WORDS: tl.constexpr, ADD: tl.constexpr):
    """Add noise to the elements from `first` on, or write it there."""
    # Runs of four are what a thread owns: wider accesses of 16-bit types would move words between threads.
    offset = tl.max_contiguous(tl.arange(0, NUM_WORDS), 4)
    place = target + first + offset
    inside = offset < tl.minimum(num_elements - first, NUM_WORDS).to(tl.int32)
    if ADD:
        noise += tl.load(place, mask=inside).to(noise.dtype)
    tl.store(place, noise.to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["first_block"])
def noise_kernel(
    target,
    key,
    table,
    num_elements,
    first_block,
    BLOCKS: tl.constexpr,
    DEGREE: tl.constexpr,
    NUM_ROWS: tl.constexpr,
    ADD: tl.constexpr,
    SECURE: tl.constexpr,
):
    """Add noise to `target`, or write it there; each program uses up BLOCKS blocks of keystream."""
    NUM_WORDS: tl.constexpr = 4 * BLOCKS  # of one row, over the program's blocks
    ROWS: tl.constexpr = 4 if SECURE else 1
    start = tl.program_id(0).to(tl.int64) * BLOCKS
    block = (first_block + start).to(tl.uint64) + tl.arange(0, BLOCKS).to(tl.uint64)
    a, places = draw_words(key, block, 0, SECURE)
    lowest = tl.min(places, axis=0)
    if table.dtype.element_ty == tl.float64:
        b, _ = draw_words(key, block, 1, SECURE)
        c, _ = draw_words(key, block, 2, SECURE)
        for row in tl.static_range(ROWS):
            noise = draw_fine(a[row], b[row], c[row], table, DEGREE, NUM_ROWS)
            write_row(target, (start * ROWS + row * BLOCKS) * 4, num_elements, noise, NUM_WORDS, ADD)
    elif lowest >= _FINE_TAIL:
        for row in tl.static_range(ROWS):
            noise = draw_coarse(a[row], table, DEGREE, NUM_ROWS)
            write_row(target, (start * ROWS + row * BLOCKS) * 4, num_elements, noise, NUM_WORDS, ADD)
    else:
        b, _ = draw_words(key, block, 1, SECURE)
        c = b  # Any words will do while q > 0: c then lies below the last bit of a float32.
        if lowest == 0:
            c, _ = draw_words(key, block, 2, SECURE)
        for row in tl.static_range(ROWS):
            coarse = draw_coarse(a[row], table, DEGREE, NUM_ROWS)
            noise = draw_fine(a[row], b[row], c[row], table, DEGREE, NUM_ROWS)
            noise = tl.where(tail_place(a[row]) < _FINE_TAIL, noise, coarse)
            write_row(target, (start * ROWS + row * BLOCKS) * 4, num_elements, noise, NUM_WORDS, ADD)


@triton.jit(do_not_specialize=["first_block"])
def keystream_kernel(
    out,
    key,
    first_block,
    BLOCKS: tl.constexpr,
    SECURE: tl.constexpr,
    DOMAIN: tl.constexpr,
):
    """Write the raw words in the order of the elements that own them, to compare with published vectors."""
    ROWS: tl.constexpr = 4 if SECURE else 1
    start = tl.program_id(0).to(tl.int64) * BLOCKS
    block = (first_block + start).to(tl.uint64) + tl.arange(0, BLOCKS).to(tl.uint64)
    words, _ = draw_words(key, block, DOMAIN, SECURE)
    for row in tl.static_range(ROWS):
        place = out + (start * ROWS + row * BLOCKS) * 4 + tl.arange(0, 4 * BLOCKS)
        tl.store(place, words[row].to(tl.int32, bitcast=True))
