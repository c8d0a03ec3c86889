"""The compile cache: what was stored comes back, and nothing else."""

import os

import pytest

from evaluators.build_cache import BuildCache

FILES = {"program": ("aGVsbG8=", True), "main.c": ("Yg==", False)}
KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def cache(tmp_path):
    return BuildCache(tmp_path / "builds")


def entry(tmp_path, key=KEY):
    return tmp_path / "builds" / f"{key}.built"


def test_what_was_stored_comes_back(cache, tmp_path):
    assert cache.find(KEY) is None
    cache.keep(KEY, FILES)
    assert cache.find(KEY) == FILES
    assert BuildCache(tmp_path / "builds").find(KEY) == FILES
    assert cache.find(OTHER) is None


def test_a_changed_entry_is_no_entry(cache, tmp_path, caplog):
    cache.keep(KEY, FILES)
    content = entry(tmp_path).read_bytes()
    entry(tmp_path).write_bytes(content.replace(b"aGVsbG8=", b"ZXZpbCE="))
    assert cache.find(KEY) is None
    assert "was changed" in caplog.text


def test_an_entry_under_another_name_is_no_entry(cache, tmp_path):
    cache.keep(KEY, FILES)
    entry(tmp_path).rename(entry(tmp_path, OTHER))
    assert cache.find(OTHER) is None


def test_a_link_is_no_entry(cache, tmp_path):
    cache.keep(KEY, FILES)
    entry(tmp_path).rename(tmp_path / "elsewhere")
    entry(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert cache.find(KEY) is None


def test_a_folder_that_others_may_write_to_is_not_used(cache, tmp_path, caplog):
    (tmp_path / "builds").mkdir()
    (tmp_path / "builds").chmod(0o777)
    cache.keep(KEY, FILES)
    assert cache.find(KEY) is None
    assert "not used" in caplog.text


def test_the_least_recently_used_programs_go_first(tmp_path):
    cache = BuildCache(tmp_path / "builds", max_bytes=1000)
    for i, key in enumerate((KEY, OTHER)):
        cache.keep(key, {"program": ("x" * 400, True)})
        os.utime(entry(tmp_path, key), (i, i))
    assert cache.find(KEY) is not None  # and is the most recently used one now
    cache.keep("c" * 64, {"program": ("x" * 400, True)})
    assert [key[0] for key in (KEY, OTHER, "c" * 64) if cache.find(key)] == ["a", "c"]


def test_a_program_beyond_the_limit_is_not_stored(tmp_path):
    cache = BuildCache(tmp_path / "builds", max_bytes=100)
    cache.keep(KEY, {"program": ("x" * 400, True)})
    assert cache.find(KEY) is None
