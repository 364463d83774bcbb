"""Malformed run lengths: what hangs or kills the usual reader, and everything next to it."""

from __future__ import annotations

import json

from tests.leaderboard.hostile.corpus import HEIGHT, WIDTH, Bad, bad_texts, prediction

N = HEIGHT * WIDTH


def spell(*runs: int) -> str:
    """COCO's code of run lengths: 5 bits a character, low first, from run 3 on the difference to the run two before."""
    text = ""
    for i, run in enumerate(runs):
        value = run - runs[i - 2] if i > 2 else run
        more = True
        while more:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            text += chr(48 + bits + (0x20 if more else 0))
    return text


def mask(counts: object, size: object = (HEIGHT, WIDTH)) -> str:
    """Return a line with a mask; `counts` as text is inserted unchanged."""
    return prediction(f'"rle": {json.dumps({"size": size, "counts": counts})}')


TABLE: dict[str, tuple[str | bytes, str]] = {
    "empty": (mask(""), "rle-sum"),
    "one character": (mask("P"), "rle-truncated"),
    "only continuations": (mask("o" * 5000), "rle-code"),
    "two bytes that loop for ever": (mask("1;"), "rle-sum"),
    "runs beyond the image": (mask(spell(N + 1)), "rle-overflow"),
    "runs that do not fill the image": (mask(spell(N - 1)), "rle-sum"),
    "one pixel too many at the end": (mask(spell(10, 10, N - 19)), "rle-overflow"),
    "a negative run": (mask(spell(-5, N + 5)), "rle-negative-run"),
    "a negative run later": (mask(spell(10, 20, 30, -5, N - 55)), "rle-negative-run"),
    "a run of 2^34": (mask(spell(2**34 - 1)), "rle-overflow"),
    "a run of 2^62": (mask(spell(2**62)), "rle-code"),
    "a run that overflows 32 bits back": (mask(spell(2**32 + N)), "rle-overflow"),
    "a code of zeros with continuations": (mask("P" * 8 + "0"), "rle-code"),
    "characters below the alphabet": (mask("/" + spell(N)), "rle-alphabet"),
    "characters above the alphabet": (mask("p" + spell(N)), "rle-alphabet"),
    "a NUL": (mask("\x00" + spell(N)), "rle-alphabet"),
    "a line end": (mask(spell(N) + "\n"), "rle-alphabet"),
    "a blank": (mask(" " + spell(N)), "rle-alphabet"),
    "another script": (mask("\u0661" + spell(N)), "rle-alphabet"),
    "half a character": (mask("\ud800" + spell(N)), "rle-alphabet"),
    "markup": (mask("<script>"), "rle-alphabet"),
    "base64": (mask("eJxLTAQAAwAB"), "rle-negative-run"),
    "a list of runs": (mask([N]), "wrong-type"),
    "null": (mask(None), "wrong-type"),
    "a number": (mask(7), "wrong-type"),
    "a list of polygons": (prediction('"rle": [[1, 1, 5, 1, 5, 5]]'), "wrong-type"),
    "a text": (prediction('"rle": "PPP"'), "wrong-type"),
    "without a size": (prediction('"rle": {"counts": "PPP"}'), "wrong-type"),
    "with more": (prediction('"rle": {"size": [48, 64], "counts": "PPP", "more": 1}'), "wrong-type"),
    "no size": (mask(spell(N), []), "wrong-type"),
    "a size of three": (mask(spell(N), [HEIGHT, WIDTH, 3]), "wrong-type"),
    "a size of nothing": (mask("0", [0, 0]), "wrong-type"),
    "a size of one nothing": (mask("0", [0, 10]), "wrong-type"),
    "a size below nothing": (mask(spell(N), [-HEIGHT, -WIDTH]), "wrong-type"),
    "a broken size": (mask(spell(N), [48.5, 64]), "wrong-type"),
    "a size of 2.5 gigapixels": (mask("0", [50_000, 50_000]), "rle-size"),
    "a size of 2^31": (mask("0", [2**31, 2]), "rle-size"),
    "a size that overflows to the right one": (mask(spell(N), [2**32 + HEIGHT, WIDTH]), "rle-size"),
    "a size of 300 digits": (mask("0", [10**300, 10**300]), "rle-size"),
    "a size as a number of 1e300": (prediction('"rle": {"size": [1e300, 64], "counts": "PPP"}'), "rle-size"),
    "height and width exchanged": (mask(spell(N), [WIDTH, HEIGHT]), "rle-size"),
    "the size of another image": (mask(spell(100), [10, 10]), "rle-size"),
    "a million runs of nothing": (mask(spell(0, 0, N) + "0" * 140_000), "rle-overflow"),
    "longer than a mask may be": (mask("0" * 200_000), "text-length"),
    "a bad one behind a good one": (
        mask(spell(N)) + mask("o").replace("FINDING", "Support Devices"), "rle-truncated"),
    "two masks": (prediction('"rle": {"size": [48, 64], "counts": "1"}, "polygons": [[[1, 1], [5, 1], [5, 5]]]'),
                  "rle-sum"),
    "polygons of COCO": (prediction('"polygons": [[1, 1, 5, 1, 5, 5]]'), "wrong-type"),
    "a contour outside": (prediction('"polygons": [[[1, 1], [1e9, 1], [5, 1e15]]]'), "outside-image"),
    "a contour that runs to and fro": (
        prediction('"polygons": [' + json.dumps([[k % 64, 47 * (k % 2)] for k in range(19_000)]) + "]"), ""),
    "odd but sound: everything": (mask(spell(0, N)), ""),
    "odd but sound: runs of nothing": (mask(spell(5, 0, 5, 10, N - 20)), ""),
    "odd but sound: a run of nothing first": (mask(spell(0) + spell(N)), ""),
    "odd but sound: a size of whole floats": (mask(spell(N), [48.0, 64.0]), ""),
    "odd but sound: an empty mask": (mask(spell(N)), ""),
}  # fmt: skip

MASKS: tuple[Bad, ...] = tuple(bad_texts("masks", TABLE))
