"""Bad lines of JSON: numbers, texts, names, structure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.leaderboard.hostile.corpus import Bad, bad_texts, prediction

HUGE = "1" + "0" * 400
NUMBERS = {
    "NaN": ("NaN", "not-finite"),
    "Infinity": ("Infinity", "not-finite"),
    "minus Infinity": ("-Infinity", "not-finite"),
    "1e400": ("1e400", "not-finite"),
    "a text": ('"10"', "number-as-text"),
    "digits of another script": ('"\\u0661\\u0662"', "number-as-text"),
    "a text with an underscore": ('"1_0"', "number-as-text"),
    "a text of no number": ('"=1+1"', "wrong-type"),
    "null": ("null", "wrong-type"),
    "true": ("true", "wrong-type"),
    "a list": ("[1]", "wrong-type"),
    "an object": ('{"$ne": 1}', "wrong-type"),
    "thousands of digits": ("9" * 5000, "number-size"),
    "a formula": ("=1+1", "json-syntax"),
    "hexadecimal": ("0x10", "json-syntax"),
    "a leading zero": ("010", "json-syntax"),
    "a comma for a point": ("1,5", ""),
}
PLACES = {
    "point": ('"point": [{}, 20]', "outside-image", "wrong-type"),
    "box": ('"box": [1, 2, {}, 4]', "outside-image", "wrong-type"),
    "vertex": ('"polygons": [[[1, 1], [20, {}], [30, 30]]]', "outside-image", "wrong-type"),
    "side": ('"rle": {{"size": [{}, 64], "counts": "PPP"}}', "rle-size", "wrong-type"),
    "score": ('"cell": "A1", "score": {}', "score-range", "json-syntax"),
}
"""Field -> text with a place for a number, rule that a huge one breaks, and one number too many."""

HOSTILE_TEXTS = {
    "markup": "<script>alert(1)</script>",
    "an image that calls out": "<img src=x onerror=alert(1)>",
    "a formula": "=HYPERLINK(1)",
    "a command": "@SUM(1+1)*cmd|' /C calc'!A0",
    "a template": "{{7*7}}${7*7}<%= 7*7 %>",
    "right to left": "\u202egnp.exe",
    "zero width": "a\u200bb",
    "a look-alike": "\u0430dmin",
    "a path": "../../../etc/passwd",
    "an absolute path": "/proc/self/environ",
    "a path of Windows": "..\\..\\boot.ini",
    "SQL": "' OR 1=1; DROP TABLE submissions; --",
    "a shell": "$(touch x); `id` | cat",
    "a format": "%s%n%x {0.__class__} {self}",
    "a combining pile": "e" + "\u0301" * 60,
    "an emoji": "\U0001f9e8\u200d\U0001f4a5",
    "a private character": "\ue000\uf8ff",
    "a noncharacter": "\ufffe\uffff",
    "a very long name": "x" * 100_000,
}
CONTROLS = {
    "NUL": "\\u0000",
    "an escape sequence": "\\u001b[2J",
    "a line end": "a\\nb",
    "a tabulator": "a\\tb",
    "a delete": "a\\u007fb",
}


def _numbers() -> Iterator[Bad]:
    for place, (text, beyond, one_more) in PLACES.items():
        table = {
            f"{name} as {place}": (
                prediction(text.format(number)),
                one_more if name == "a comma for a point" else rule,
            )
            for name, (number, rule) in NUMBERS.items()
        }
        table[f"an integer of 400 digits as {place}"] = (prediction(text.format(HUGE)), beyond)
        table[f"less than nothing as {place}"] = (prediction(text.format("-1")), {
            "box": "box-size", "side": "wrong-type",
        }.get(place, beyond))  # fmt: skip
        yield from bad_texts("numbers", table)


def _names() -> Iterator[Bad]:
    for field, rule in (("image_id", "unknown-image"), ("finding", "unknown-finding")):
        other = "finding" if field == "image_id" else "image_id"
        known = {"finding": "FINDING", "image_id": "IMAGE"}[other]
        table = {}
        for name, text in {**HOSTILE_TEXTS, **CONTROLS}.items():
            wanted = "control-character" if name in CONTROLS else "text-length" if len(text) > 500 else rule
            escaped = text if name in CONTROLS else text.replace("\\", "\\\\").replace('"', '\\"')
            table[f"{name} as {field}"] = (
                f'{{"{field}": "{escaped}", "{other}": "{known}", "cell": "A1"}}\n',
                wanted,
            )
        table[f"half a character as {field}"] = (f'{{"{field}": "\\ud83d", "{other}": "{known}", "cell": "A1"}}', rule)
        yield from bad_texts("names", table)


STRUCTURE: dict[str, tuple[str | bytes, str]] = {
    "a key twice": (prediction('"cell": "A1", "cell": "B2"'), "duplicate-key"),
    "the image twice": (prediction('"cell": "A1", "image_id": "IMAGE"'), "duplicate-key"),
    "a key twice, once escaped": (prediction('"cell": "A1", "\\u0063ell": "B2"'), "duplicate-key"),
    "a key twice inside a mask": (prediction('"rle": {"size": [48, 64], "size": [1, 1], "counts": "PPP"}'),
                                  "duplicate-key rle-size rle-truncated"),
    "a pair twice": (prediction('"cell": "A1"') * 2, "duplicate-pair"),
    "a pair twice, spelled otherwise": (
        prediction('"cell": "A1"') + prediction('"cell": "A1"').replace("FINDING", "  FINDING "), "duplicate-pair"),
    "an unknown key": (prediction('"cell": "A1", "patient_name": "x"'), "unknown-field"),
    "a key of Python": (prediction('"cell": "A1", "__class__": "x", "__proto__": {}'), "unknown-field"),
    "a key of markup": (prediction('"cell": "A1", "<script>": 1'), "unknown-field"),
    "a key of a control": (prediction('"cell": "A1", "\\u0000\\u001b[2J": 1'), "unknown-field"),
    "an empty key": (prediction('"cell": "A1", "": 1'), "unknown-field"),
    "a key of a megabyte": (prediction(f'"cell": "A1", "{"k" * 1_000_000}": 1'), "unknown-field"),
    "a key of a megabyte, twice": (
        prediction(f'"cell": "A1", "{"k" * 1_000_000}": 1, "{"k" * 1_000_000}": 2'), "duplicate-key unknown-field"),
    "ten thousand keys": (
        prediction('"cell": "A1", ' + ", ".join(f'"k{i}": 1' for i in range(10_000))), "unknown-field"),
    "no geometry": ('{"image_id": "IMAGE", "finding": "FINDING"}', "missing-geometry"),
    "nothing": ("{}", "missing-field missing-geometry"),
    "a list": ("[]", "empty-file"),
    "a number after a line": (prediction('"cell": "A1"') + "42\n", "not-an-object"),
    "null after a line": (prediction('"cell": "A1"') + "null\n", "not-an-object"),
    "a line cut off": (prediction('"cell": "A1"') + '{"image_id": "IMAGE", "fin', "json-syntax"),
    "two objects in a line": (prediction('"cell": "A1"').strip() * 2, "json-syntax"),
    "a comma at the end": (prediction('"cell": "A1",'), "json-syntax"),
    "a comment": (prediction('"cell": "A1"') + "// no comment\n", "json-syntax"),
    "single quotes": ("{'image_id': 'IMAGE'}\n", "json-syntax"),
    "a raw control character": (prediction('"cell": "A\x011"'), "control-character"),
    "a raw NUL": (prediction('"cell": "A1"') + "\x00\n", "json-syntax"),
    "deep lists": (prediction('"cell": ' + "[" * 100_000 + "]" * 100_000), "nesting"),
    "deep objects": ('{"image_id": ' * 50_000, "nesting"),
    "260 deep": (prediction('"cell": ' + "[" * 260 + "]" * 260), "nesting"),
    "200 deep": (prediction('"cell": ' + "[" * 200 + "]" * 200), "wrong-type"),
    "brackets in a text": (prediction(f'"cell": "{"[" * 90}"'), "cell"),
    "a cell outside": (prediction('"cell": "I9"'), "cell"),
    "a cell of markup": (prediction('"cell": "<b>A1</b>"'), "cell"),
    "a cell of a megabyte": (prediction(f'"cell": "{"A" * 1_000_000}"'), "text-length"),
    "point and points": (prediction('"point": [1, 2], "points": [[1, 2]]'), "point-and-points"),
    "two points": (prediction('"points": [[1, 2], [3, 4]]'), "wrong-type"),
    "a lattice of points": (prediction(f'"points": {[[x, y] for x in range(60) for y in range(40)]}'), "wrong-type"),
    "a point on the border": (prediction('"point": [64, 48]'), "outside-image"),
    "a box of nothing": (prediction('"box": [1, 1, 0, 5]'), "box-size"),
    "a box beyond": (prediction('"box": [60, 40, 10, 10]'), "outside-image"),
    "a contour of two": (prediction('"polygons": [[[1, 1], [2, 2]]]'), "wrong-type"),
    "no contour": (prediction('"polygons": []'), "wrong-type"),
    "a thousand contours": (prediction(f'"polygons": {[[[1, 1], [9, 1], [9, 9]]] * 1000}'), "wrong-type"),
    "a million vertices": (prediction('"polygons": [[' + "[1,1]," * 400_000 + "[1,1]]]"), "vertices"),
    "a score of 2": (prediction('"cell": "A1", "score": 2'), "score-range"),
    "a line of 5 MB": (prediction(f'"cell": "{"A" * 5_000_000}"'), "line-length"),
    "200,000 lines": ("{}\n" * 200_000, "entries"),
    "5,000 errors": ('{"image_id": 1, "finding": "FINDING", "cell": "A1"}\n' * 5000, "image-number too-many-problems"),
    "5,000 unknown images": (
        "".join(f'{{"image_id": "q{i}", "finding": "FINDING", "cell": "A1"}}\n' for i in range(5000)),
        "unknown-image too-many-problems"),
    "odd but sound: blanks and CRLF": ("\r\n \t\r\n" + prediction('"cell": "A1"').strip() + "\r\n\r\n", ""),
    "odd but sound: minus zero": (prediction('"point": [-0.0, 0]'), ""),
    "odd but sound: tiny numbers": (prediction('"point": [1e-400, 4.9e-324]'), ""),
    "odd but sound: escapes": (prediction('"\\u0063ell": "\\u0041\\u0031"'), ""),
    "odd but sound: a quote escaped": (prediction('"cell": "B\\u0032", "score": 0.5'), ""),
    "odd but sound: a pair not asked": (
        prediction('"cell": "C3"') + '{"image_id": "IMAGE", "finding": "Support Devices", "cell": "A1"}', ""),
}  # fmt: skip

LINES = (*_numbers(), *_names(), *bad_texts("structure", STRUCTURE))
