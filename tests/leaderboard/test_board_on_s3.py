"""A real server and a real worker whose uploads lie in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reveal_leaderboard.store.blobs import Blobs

from tests.leaderboard.conftest import Board, serve
from tests.leaderboard.test_blobs import bucket

__all__ = ["bucket"]


@pytest.mark.processes
def test_an_upload_goes_through_the_bucket(
    bucket: str, board: Board, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    url = f"s3://{bucket}/live"
    with serve(board, tmp_path, "--blobs", url) as server:
        answer = server.post(write_file())
        assert answer.status_code in (201, 202), answer.text
        assert len(list(Blobs(url).names())) == 2  # the file, and its predictions
        assert not (tmp_path / "data" / "blobs").exists()
        with server.worker("--blobs", url):
            assert server.wait_scored(answer.json()["id"])["status"] == "scored"
