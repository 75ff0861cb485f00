"""The bounded cache: by count and by size, least recently used first."""

from __future__ import annotations

import pytest

from offload_hooks.bounded_cache import BoundedCache


def test_the_least_recently_used_value_is_dropped():
    cache = BoundedCache(2)
    for key in "ab":
        cache.put(key, key.upper())
    assert cache.get("a") == "A"
    cache.put("c", "C")
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    assert (len(cache), cache.used) == (2, 2)


def test_a_size_bounds_the_cache_and_a_value_beyond_it_is_not_kept():
    cache = BoundedCache(10, size_of=len)
    cache.put("a", b"1234")
    cache.put("b", b"123456")
    cache.put("a", b"12")
    assert (len(cache), cache.used) == (2, 8)
    cache.put("c", b"x" * 11)
    assert (cache.get("c"), cache.used) == (None, 8)
    cache.put("d", b"12345")
    assert (cache.get("b"), cache.used) == (None, 7)
    cache.put("a", b"x" * 11)
    assert (cache.get("a"), cache.used) == (None, 5)
    cache.clear()
    assert (len(cache), cache.used) == (0, 0)


def test_a_value_is_made_once_even_if_it_is_none():
    cache, made = BoundedCache(2), []

    def make(value):
        made.append(value)
        return value

    loaded = [cache.load(key, lambda key=key: make(None if key else 0)) for key in (0, 1, 0, 1)]
    assert loaded == [0, None, 0, None]
    assert made == [0, None]
    cache.pop(1)
    cache.pop(1)
    cache.load(1, lambda: make(5))
    assert made == [0, None, 5]


def test_an_error_of_the_loader_leaves_nothing():
    cache = BoundedCache(2)
    with pytest.raises(ZeroDivisionError):
        cache.load("a", lambda: 1 // 0)
    assert cache.load("a", lambda: 3) == 3
