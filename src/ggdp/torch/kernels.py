# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, no-any-return"
"""Triton kernels: draw and add in one pass over memory.

Every element owns one word in each of three parallel keystreams ("domains" 0, 1, 2: the words a, b, c of
`ggdp.distributions.quantile_table`), so a result depends on key and position alone, never on the launch.
Domain 0 is computed for every element; float32 arithmetic computes the other two only in the few programs
that hold an element with u < 2^-14.

Keystreams come from Philox-4x32-10 (blocks of four words, statistical quality), where element n owns word n,
or from ChaCha20 (blocks of sixteen, cryptographic), dealt out as `ggdp.torch.streams.CHACHA_SPAN` says.
"""

import triton
import triton.language as tl

from ggdp.distributions import quantile_table as layout

_SIGN = tl.constexpr(0x80000000)
_Q_MASK = tl.constexpr(0x3FFFFFFF)
# The end bit set and the bits of q from FINE_TAIL up all zero, whatever the sign.
_FINE_PATTERN = tl.constexpr(1 << 30)
_FINE_MASK = tl.constexpr(0x7FFFFFFF & -layout.FINE_TAIL)
# Rows start at the piece of f = 2^LOWEST_EXPONENT; a row is twice the piece plus the end.
_FIRST_ROW_32 = tl.constexpr(2 * ((127 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS))
_FIRST_ROW_64 = tl.constexpr(2 * ((1023 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS))
_SHRINK_32 = tl.constexpr(layout.SHRINK_FLOAT32)
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
def needs_fine_place(a):
    """Return whether a word of domain 0 lies in the tail with q < 2^17."""
    return (a & _FINE_MASK) == _FINE_PATTERN


@triton.jit
def any_of_four(w0, w1, w2, w3):
    """Return, for each block, whether one of its four words needs a fine place."""
    return needs_fine_place(w0) | needs_fine_place(w1) | needs_fine_place(w2) | needs_fine_place(w3)


@triton.jit
def chacha20_words(key, block, DOMAIN: tl.constexpr):
    """Return the four rows of the given 64-bit block numbers, and which blocks need fine places."""
    k0, k1, k2, k3 = _word(key, 0), _word(key, 1), _word(key, 2), _word(key, 3)
    k4, k5, k6, k7 = _word(key, 4), _word(key, 5), _word(key, 6), _word(key, 7)
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    n0, n1 = _word(key, 8), _word(key, 9) | DOMAIN
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = chacha20_block(
        k0, k1, k2, k3, k4, k5, k6, k7, c0, c1, n0, n1
    )
    fine = any_of_four(x0, x1, x2, x3) | any_of_four(x4, x5, x6, x7)
    fine = fine | any_of_four(x8, x9, x10, x11) | any_of_four(x12, x13, x14, x15)
    y0, y1 = join_four(x0, x1, x2, x3), join_four(x4, x5, x6, x7)
    y2, y3 = join_four(x8, x9, x10, x11), join_four(x12, x13, x14, x15)
    return (y0, y1, y2, y3), fine


@triton.jit
def philox_block(k0, k1, c0, c1, c2, c3, NUM_ROUNDS: tl.constexpr):
    """Return the four words of each block: Philox-4x32 of Salmon, Moraes, Dror and Shaw (2011), section 4.

    The products are taken in 64 bits, which costs half the multiplications of `tl.philox`.
    """
    for _ in tl.static_range(NUM_ROUNDS):
        left, right = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (right >> 32).to(tl.uint32) ^ c1 ^ k0, (left >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = right.to(tl.uint32), left.to(tl.uint32)
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def philox_words(key, block, DOMAIN: tl.constexpr, NUM_ROUNDS: tl.constexpr):
    """Do the same with Philox, whose blocks have one row; the upper half of its counter names the stream."""
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    zero = c0 ^ c0
    c2, c3 = zero + _word(key, 2), zero + (_word(key, 3) ^ DOMAIN)
    w0, w1, w2, w3 = philox_block(_word(key, 0), _word(key, 1), c0, c1, c2, c3, NUM_ROUNDS)
    return (join_four(w0, w1, w2, w3),), any_of_four(w0, w1, w2, w3)


@triton.jit
def _word(key, INDEX: tl.constexpr):
    return tl.load(key + INDEX).to(tl.uint32, bitcast=True)


@triton.jit
def draw_words(key, block, DOMAIN: tl.constexpr, SECURE: tl.constexpr, NUM_ROUNDS: tl.constexpr):
    """Return the rows of words of one domain, from the chosen cipher."""
    if SECURE:
        return chacha20_words(key, block, DOMAIN)
    else:
        return philox_words(key, block, DOMAIN, NUM_ROUNDS)


@triton.jit
def gather_rows(table, row, INDEX: tl.constexpr, NUM_ROWS: tl.constexpr, SHARED: tl.constexpr):
    """Return one coefficient for every row: from the first-level cache, or through shared memory."""
    if SHARED:
        column = tl.arange(0, 1024)
        entries = tl.load(table + INDEX * NUM_ROWS + column, mask=column < NUM_ROWS, other=0.0)
        return tl.gather(entries, row, 0)
    else:
        return tl.load(table + INDEX * NUM_ROWS + row)


@triton.jit
def evaluate_pieces(f, end, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr, SHARED: tl.constexpr):
    """Return G at f, by Horner's rule on the piece that f lies in."""
    if f.dtype == tl.float64:
        bits = tl.minimum(f.to(tl.int64, bitcast=True), _LARGEST_64)
        row = ((bits >> 50) * 2).to(tl.int32) + end - _FIRST_ROW_64
        t = ((bits & 0x3FFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True) - 1.125
    else:
        bits = f.to(tl.int32, bitcast=True)
        row = (bits >> 21) * 2 + end - _FIRST_ROW_32
        t = ((bits & 0x1FFFFF) | 0x3F800000).to(tl.float32, bitcast=True) - 1.125
    value = gather_rows(table, row, DEGREE, NUM_ROWS, SHARED)
    for k in tl.static_range(DEGREE):
        value = value * t + gather_rows(table, row, DEGREE - 1 - k, NUM_ROWS, SHARED)
    return value


@triton.jit
def draw_coarse(a, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr, SHARED: tl.constexpr):
    """Turn words of domain 0 into noise in float32; zero where a fine place is needed."""
    f = (a & _Q_MASK).to(tl.float32) * _SHRINK_32 + 0.5
    magnitude = evaluate_pieces(f, ((a >> 30) & 1).to(tl.int32), table, DEGREE, NUM_ROWS, SHARED)
    magnitude = tl.where(needs_fine_place(a), 0.0, magnitude)
    return tl.where(a >= _SIGN, -magnitude, magnitude)


@triton.jit
def draw_fine(a, b, c, table, DEGREE: tl.constexpr, NUM_ROWS: tl.constexpr, SHARED: tl.constexpr):
    """Turn the words of all three domains into noise, in the precision of the table."""
    precision = table.dtype.element_ty
    q = (a & _Q_MASK).to(precision)
    f = q + b.to(precision) * _WORD + (c.to(precision) + 0.5) * _TWO_WORDS
    magnitude = evaluate_pieces(f, ((a >> 30) & 1).to(tl.int32), table, DEGREE, NUM_ROWS, SHARED)
    return tl.where(a >= _SIGN, -magnitude, magnitude)


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
    SHARED: tl.constexpr = False,
    NUM_ROUNDS: tl.constexpr = 10,
    FINE: tl.constexpr = True,
):
    """Add noise to `target`, or write it there; each program uses up BLOCKS blocks of keystream.

    FINE = False leaves the tail beyond 2^-14 out; it exists to measure what that tail costs.
    """
    NUM_WORDS: tl.constexpr = 4 * BLOCKS  # of one row, over the program's blocks
    ROWS: tl.constexpr = 4 if SECURE else 1
    start = tl.program_id(0).to(tl.int64) * BLOCKS
    block = (first_block + start).to(tl.uint64) + tl.arange(0, BLOCKS).to(tl.uint64)
    offset = tl.arange(0, NUM_WORDS)
    a, block_is_fine = draw_words(key, block, 0, SECURE, NUM_ROUNDS)
    wide: tl.constexpr = table.dtype.element_ty == tl.float64
    if wide:
        b, _ = draw_words(key, block, 1, SECURE, NUM_ROUNDS)
        c, _ = draw_words(key, block, 2, SECURE, NUM_ROUNDS)
    for row in tl.static_range(ROWS):
        first = (start * ROWS + row * BLOCKS) * 4
        place = target + first + offset
        inside = offset < tl.minimum(num_elements - first, NUM_WORDS).to(tl.int32)
        if wide:
            noise = draw_fine(a[row], b[row], c[row], table, DEGREE, NUM_ROWS, SHARED)
        else:
            noise = draw_coarse(a[row], table, DEGREE, NUM_ROWS, SHARED)
        if ADD:
            noise += tl.load(place, mask=inside).to(noise.dtype)
        tl.store(place, noise.to(target.dtype.element_ty), mask=inside)
    if FINE and not wide:  # noqa: SIM102  (known to the compiler, unlike the next condition)
        if tl.max(block_is_fine.to(tl.int32), axis=0) > 0:
            # Elements with u < 2^-14 stand as they were. Every store must be done before they are read again.
            tl.debug_barrier()
            a, _ = draw_words(key, block, 0, SECURE, NUM_ROUNDS)
            b, _ = draw_words(key, block, 1, SECURE, NUM_ROUNDS)
            c, _ = draw_words(key, block, 2, SECURE, NUM_ROUNDS)
            for row in tl.static_range(ROWS):
                first = (start * ROWS + row * BLOCKS) * 4
                place = target + first + offset
                inside = offset < tl.minimum(num_elements - first, NUM_WORDS).to(tl.int32)
                chosen = inside & needs_fine_place(a[row])
                noise = draw_fine(a[row], b[row], c[row], table, DEGREE, NUM_ROWS, SHARED)
                if ADD:
                    noise += tl.load(place, mask=chosen).to(tl.float32)
                tl.store(place, noise.to(target.dtype.element_ty), mask=chosen)


@triton.jit(do_not_specialize=["first_block"])
def keystream_kernel(
    out,
    key,
    first_block,
    BLOCKS: tl.constexpr,
    SECURE: tl.constexpr,
    DOMAIN: tl.constexpr,
    NUM_ROUNDS: tl.constexpr = 10,
):
    """Write the raw words in the order of the elements that own them, to compare with published vectors."""
    ROWS: tl.constexpr = 4 if SECURE else 1
    start = tl.program_id(0).to(tl.int64) * BLOCKS
    block = (first_block + start).to(tl.uint64) + tl.arange(0, BLOCKS).to(tl.uint64)
    words, _ = draw_words(key, block, DOMAIN, SECURE, NUM_ROUNDS)
    for row in tl.static_range(ROWS):
        place = out + (start * ROWS + row * BLOCKS) * 4 + tl.arange(0, 4 * BLOCKS)
        tl.store(place, words[row].to(tl.int32, bitcast=True))
