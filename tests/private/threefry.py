"""The counter-based generator behind JAX, as much of it as the published experiments' data need.

Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3"; words in the order of JAX 0.4.
"""

import numpy as np
from scipy.special import erfinv

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _rotated(x, by):
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _words(key, count):
    """`count` 32-bit words (an even number) of a key."""
    keys = [*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    with np.errstate(over="ignore"):
        x, y = np.arange(count, dtype=np.uint32).reshape(2, -1) + np.array(keys[:2])[:, None]
        for i in range(5):
            for by in _ROTATIONS[i % 2]:
                x = x + y
                y = _rotated(y, by) ^ x
            x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return np.concatenate([x, y])


def _normals(key, count):
    high, low = _words(key, 2 * count).reshape(2, -1).astype(np.uint64)
    bits = (high << np.uint64(32)) | low
    unit = ((bits >> np.uint64(12)) | np.uint64(0x3FF0000000000000)).view(np.float64) - 1.0
    least = np.nextafter(-1.0, 0.0)
    return np.sqrt(2) * erfinv(np.maximum(least, unit * (1 - least) + least))


def banana_rows(n):
    """Rows of the published two-dimensional banana experiments."""
    keys = _words(np.array([0, 43247], dtype=np.uint32), 6).reshape(3, 2)
    return np.stack([np.sqrt(20) * _normals(keys[0], n), np.sqrt(2.5) * _normals(keys[1], n) + 3], axis=1)
