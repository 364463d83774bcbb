"""Picture files without what is no picture: EXIF, comments, text chunks, thumbnails, and whatever follows the end.

Such places can hold names, dates and paths. They are cut out without touching the coded pixels: a file that has none
comes back byte for byte. Of a JPEG stay the segments that decoding needs (JFIF and Adobe headers, ICC profile, tables,
scans); of a PNG the critical chunks and those that change how pixels are shown.

Sources: ITU T.81 (JPEG markers), W3C PNG third edition (chunks).
"""

from __future__ import annotations

__all__ = ["without_metadata"]

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT", b"bKGD", b"pHYs"}
_JPEG_KEPT_APP = {0xE0: (b"JFIF\0",), 0xE2: (b"ICC_PROFILE\0",), 0xEE: (b"Adobe",)}
"""APPn markers that may stay, with the beginnings that their contents must have."""


def without_metadata(data: bytes) -> bytes:
    """`data` without metadata, if it is a JPEG or PNG file; anything else comes back as it is.

    Raises
    ------
    ValueError
        If the file's structure is broken; the message is the reason alone.

    Examples
    --------
    >>> tables = bytes.fromhex("ffdb0004abcd")
    >>> comment = bytes.fromhex("fffe0007") + b"Doe J"
    >>> end = bytes.fromhex("ffda0002") + b"scan" + bytes.fromhex("ffd9")
    >>> start = bytes.fromhex("ffd8")
    >>> without_metadata(start + comment + tables + end + b"tail") == start + tables + end
    True
    """
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_PNG):
        return _png(data)
    return data


def _jpeg(data: bytes) -> bytes:
    kept = [data[:2]]
    place = 2
    while True:
        if data[place : place + 1] != b"\xff" or place + 1 >= len(data):
            raise ValueError(f"a broken JPEG file: no marker at byte {place:,}")
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
            continue
        if marker == 0xD9:
            kept.append(b"\xff\xd9")
            return b"".join(kept)
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        end = place + 2 + length
        if length < 2 or end > len(data):
            raise ValueError(f"a broken JPEG file: a segment of {length:,} bytes at byte {place:,}")
        if marker == 0xDA:
            end = _end_of_scan(data, end)
        if not _is_metadata(marker, data[place + 4 : end]):
            kept.append(data[place:end])
        place = end


def _is_metadata(marker: int, content: bytes) -> bool:
    if marker == 0xFE:
        return True
    if not 0xE0 <= marker <= 0xEF:
        return False
    return not content.startswith(_JPEG_KEPT_APP.get(marker, ()))


def _end_of_scan(data: bytes, place: int) -> int:
    """Where the coded data end: at the next marker that is neither a stuffed byte nor a restart."""
    while (place := data.find(b"\xff", place)) >= 0 and place + 1 < len(data):
        follower = data[place + 1]
        if follower != 0 and not 0xD0 <= follower <= 0xD7:
            return place
        place += 2
    raise ValueError("a broken JPEG file: the coded data do not end")


def _png(data: bytes) -> bytes:
    kept = [_PNG]
    place = len(_PNG)
    while True:
        length, kind = int.from_bytes(data[place : place + 4], "big"), data[place + 4 : place + 8]
        end = place + 12 + length
        if len(kind) < 4 or end > len(data):
            raise ValueError(f"a broken PNG file: a chunk of {length:,} bytes at byte {place:,}")
        if kind in _PNG_KEPT:
            kept.append(data[place:end])
        if kind == b"IEND":
            return b"".join(kept)
        place = end
