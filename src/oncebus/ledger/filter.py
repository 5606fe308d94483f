"""Implements the filter of a run, which rejects nearly every key that the run does not hold.

It is a blocked Bloom filter, with blocks of one 64-bit word and 8 bits per key. The high half of the digest, scaled to
the number of words, selects the word, so that keys in ascending order touch the words in ascending order. The lowest 24
bits of the low half select four bits within the word, with six bits each. About 3.4 % of absent keys pass.
"""

from __future__ import annotations

import numpy as np

from oncebus.detection.values import Flags, Index, Keys

_KEYS_PER_WORD = 8
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_SIX_BITS = np.uint64(63)


def filter_words(size: int) -> int:
    """Return the number of words in the filter of a run with `size` keys."""
    return -(-size // _KEYS_PER_WORD)


def filter_masks(low: Keys) -> Keys:
    """Return the bits that each key sets in its word."""
    mask = np.zeros(len(low), np.uint64)
    for shift in (0, 6, 12, 18):
        mask |= _ONE << ((low >> np.uint64(shift)) & _SIX_BITS)
    return mask


def build_filter(high: Keys, low: Keys) -> Keys:
    """Return the words of the filter for these keys, which must be ascending."""
    words = np.zeros(filter_words(len(high)), np.uint64)
    add_to_filter(words, high, low)
    return words


def add_to_filter(words: Keys, high: Keys, low: Keys) -> None:
    """Set the bits of these keys, which must be ascending, in the words of a filter."""
    if len(high):
        at = _word_of(high, len(words))
        # Ascending keys are grouped by word, so each word is one slice of them.
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        words[at[first]] |= np.bitwise_or.reduceat(filter_masks(low), first)


def passes_filter(words: Keys, high: Keys, mask: Keys) -> Flags:
    """Return, for each key, whether it may be in the run. If false, the key is certainly not there."""
    return np.asarray((words[_word_of(high, len(words))] & mask) == mask, np.bool_)


def _word_of(high: Keys, words: int) -> Index:
    return np.asarray(((high >> _HALF) * np.uint64(words)) >> _HALF, np.intp)
