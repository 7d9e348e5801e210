# SPDX-License-Identifier: Apache-2.0
"""ChaCha20 and Philox written plainly in NumPy, and published vectors that hold them to their definitions.

Vectors of ChaCha20: RFC 8439, section 2.3.2 and appendix A.1. Vectors of Philox-4x32-10: the file
`kat_vectors` of Random123.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class ChaChaVector:
    """A key, a 32-bit counter, a 96-bit nonce and the block they give."""

    key: bytes
    counter: int
    nonce: bytes
    block: bytes

    @property
    def long_counter(self) -> int:
        """State words 12 and 13 as one number."""
        return self.counter | int.from_bytes(self.nonce[:4], "little") << 32

    @property
    def stream_words(self) -> tuple[int, int]:
        """State words 14 and 15."""
        return int.from_bytes(self.nonce[4:8], "little"), int.from_bytes(self.nonce[8:], "little")


CHACHA_VECTORS = {
    "section 2.3.2": ChaChaVector(
        bytes(range(32)),
        1,
        bytes.fromhex("000000090000004a00000000"),
        bytes.fromhex(
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
        ),
    ),
    "appendix A.1 #1": ChaChaVector(
        bytes(32),
        0,
        bytes(12),
        bytes.fromhex(
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        ),
    ),
    "appendix A.1 #2": ChaChaVector(
        bytes(32),
        1,
        bytes(12),
        bytes.fromhex(
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
        ),
    ),
    "appendix A.1 #3": ChaChaVector(
        bytes(31) + b"\x01",
        1,
        bytes(12),
        bytes.fromhex(
            "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
            "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
        ),
    ),
    "appendix A.1 #4": ChaChaVector(
        b"\x00\xff" + bytes(30),
        2,
        bytes(12),
        bytes.fromhex(
            "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
            "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"
        ),
    ),
}

PHILOX_VECTORS = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


def chacha20_words(key: Words, first_block: int, num_blocks: int, *, domain: int = 0) -> Words:
    """The keystream of consecutive blocks; `key` has the eight key words and state words 14 and 15."""
    counter = first_block + np.arange(num_blocks, dtype=np.uint64)
    state = np.empty((16, num_blocks), dtype=np.uint32)
    state[:4] = np.frombuffer(b"expand 32-byte k", dtype="<u4")[:, None]
    state[4:12] = key[:8, None]
    state[12], state[13] = counter.astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
    state[14], state[15] = key[8], key[9] | np.uint32(domain)
    x = state.copy()
    for _ in range(10):
        for column in range(4):
            _quarter_round(x, column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            _quarter_round(x, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return (x + state).T.reshape(-1)


def _quarter_round(x: Words, a: int, b: int, c: int, d: int) -> None:
    for target, other, rotated, num_bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[target] += x[other]
        mixed = x[rotated] ^ x[target]
        x[rotated] = (mixed << np.uint32(num_bits)) | (mixed >> np.uint32(32 - num_bits))


def philox_words(
    key: Words, first_block: int, num_blocks: int, *, domain: int = 0, num_rounds: int = 10
) -> Words:
    """The words of consecutive blocks; `key` has two key words and the counter's two upper words."""
    counter = first_block + np.arange(num_blocks, dtype=np.uint64)
    c = [counter.astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)]
    c += [np.full(num_blocks, key[2]), np.full(num_blocks, key[3] ^ np.uint32(domain))]
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(num_rounds):
        left, right = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high_left, high_right = (
            (left >> np.uint64(32)).astype(np.uint32),
            (right >> np.uint64(32)).astype(np.uint32),
        )
        c = [
            high_right ^ c[1] ^ np.uint32(k0),
            right.astype(np.uint32),
            high_left ^ c[3] ^ np.uint32(k1),
            left.astype(np.uint32),
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, axis=1).reshape(-1)
