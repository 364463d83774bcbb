"""Keyed ids: they equal HMAC-SHA256, and the secret stays secret."""

import hashlib
import hmac
import os
import stat

import pytest

from reveal_bench.sources import ids
from reveal_bench.sources.ids import check_collisions, keyed_id, read_id_key

KEY = bytes(range(32))


def test_an_id_is_an_hmac():
    digest = hmac.new(KEY, b"reveal-bench\0study\x001.2.840.1", hashlib.sha256).hexdigest()
    assert keyed_id(KEY, "study", "1.2.840.1") == f"study-{digest[:16]}"


def test_ids_tell_nothing_of_each_other():
    made = {keyed_id(KEY, kind, uid)[-16:] for kind in ("study", "image", "patient") for uid in ("1.2", "1.2.3", "2")}
    assert len(made) == 9
    assert keyed_id(KEY, "study", "1.2") != keyed_id(bytes(32), "study", "1.2")


def test_padding_of_a_uid_does_not_matter():
    assert keyed_id(KEY, "image", "1.2.3\0") == keyed_id(KEY, "image", " 1.2.3")


@pytest.mark.parametrize(
    ("key", "kind", "uid", "message"),
    [
        (bytes(31), "study", "1.2", "`key` must have at least 32 bytes, got 31"),
        (KEY, "series", "1.2", "`kind` must be one of study, image, patient, got 'series'"),
        (KEY, "study", " \0", "`uid` must not be empty"),
    ],
)
def test_bad_arguments(key, kind, uid, message):
    with pytest.raises(ValueError, match=message):
        keyed_id(key, kind, uid)


def test_collisions_are_found(monkeypatch):
    assert check_collisions(KEY, "study", ["1", "2", "2", "3"]) == {}
    monkeypatch.setattr(ids, "DIGITS", 1)  # 17 uids in 16 places
    shared = check_collisions(KEY, "study", [str(i) for i in range(17)])
    assert shared
    assert all(len({keyed_id(KEY, "study", uid) for uid in uids}) == 1 for uids in shared.values())


def test_a_secret_is_made_once_and_read_again(tmp_path):
    path = tmp_path / "key"
    made = read_id_key(path, create=True)
    assert len(made) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_id_key(path, create=True) == read_id_key(path) == made
    assert read_id_key(tmp_path / "other", create=True) != made


def test_a_secret_of_one_s_own(tmp_path):
    path = tmp_path / "key"
    path.write_text("00112233 " * 8 + "\n", encoding="ascii")
    path.chmod(0o400)
    assert read_id_key(path) == bytes.fromhex("00112233") * 8


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX systems")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_secret_that_others_may_read(tmp_path, mode):
    path = tmp_path / "key"
    path.write_text("00" * 32, encoding="ascii")
    path.chmod(mode)
    with pytest.raises(
        ValueError, match=rf"only the owner may be able to read the secret \(chmod 600\), got mode {mode:04o}"
    ):
        read_id_key(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have at least 64 hexadecimal digits, got 0"),
        ("ab" * 31, "must have at least 64 hexadecimal digits, got 62"),
        ("password " * 8, "must be written in hexadecimal digits"),
        ("0" * 65, "must be written in hexadecimal digits"),
    ],
)
def test_invalid_secret_is_refused(tmp_path, content, message):
    path = tmp_path / "key"
    path.write_text(content, encoding="ascii")
    path.chmod(0o600)
    with pytest.raises(ValueError, match=message) as error:
        read_id_key(path)
    assert "password" not in str(error.value)


def test_a_secret_that_is_missing(tmp_path):
    with pytest.raises(ValueError, match="no such file; it must contain the secret from which ids are made"):
        read_id_key(tmp_path / "key")
    assert not (tmp_path / "key").exists()
