"""Every rule of the linter: its stable identifier and what it asks.

A rule is an error wherever the file could not be scored as it stands; those marked "(warning)" never refuse a file.
"""

from __future__ import annotations

__all__ = ["RULES"]

RULES: dict[str, str] = {
    # the file
    "file-size": "the file is not larger than the limit",
    "expanded-size": "a compressed file or a table is not larger than the limit when expanded",
    "compression": "a compressed file is whole, and compressed once",
    "format": "the file has one of the accepted formats",
    "encoding": "text is UTF-8",
    "byte-order-mark": "text begins without a byte order mark (warning)",
    "empty-file": "the file holds predictions",
    "entries": "there are not more predictions than the limit",
    "line-length": "a line is not longer than the limit",
    "containers": "a JSON document has not more brackets, nor commas, than the limit",
    "polygon-work": "filling all contours is not more work than the limit",
    "too-many-problems": "reading stops after so many problems",
    # JSON and tables
    "json-syntax": "text that looks like JSON is JSON",
    "nesting": "JSON is not nested deeper than 250",
    "number-size": "a number has not thousands of digits",
    "duplicate-key": "a key stands once in an object",
    "not-an-object": "a line, or a COCO result, is an object",
    "table-syntax": "a table can be read as one",
    "columns": "a table has not more columns than the limit",
    "missing-column": "image_id, finding and the columns of one geometry are there",
    "unknown-column": "a column has a known name",
    "duplicate-column": "a column stands once",
    "column-type": "a Parquet column holds text or numbers as its name says",
    "row-length": "a row has as many values as the header",
    # one prediction
    "missing-field": "image_id and finding (and img_size of CheXlocalize annotations) are given",
    "missing-geometry": "a point, points, cell, box, rle or polygons is given",
    "unknown-field": "a field has a known name",
    "point-and-points": "not both point and points are given",
    "two-masks": "not both rle and polygons are given: rle counts (warning)",
    "wrong-type": "a value has the type and shape of its field",
    "text-length": "a text is not longer than the limit",
    "control-character": "a text holds no control characters",
    "not-finite": "a number is finite",
    "number-as-text": "a number is not written as text",
    "unknown-image": "the image is one of the split, its id written exactly so",
    "unknown-finding": "the finding is one of the benchmark",
    "finding-spelling": "the finding is spelled as the benchmark spells it (warning)",
    "category-number": "COCO categories are named, not numbered (warning)",
    "outside-image": "points, boxes and contours lie inside the image",
    "box-size": "a box has a width and a height above 0",
    "cell": "a cell lies in the grid: a capital letter and a number",
    "score-range": "a score lies in [0, 1]",
    "vertices": "the contours of a prediction have not more vertices than the limit",
    "image-size": "img_size is that of the image",
    "rle-size": "a mask has the size of the image, height first",
    "rle-alphabet": "run lengths hold only the characters 0 to o",
    "rle-truncated": "run lengths end with a whole run",
    "rle-code": "a run is written in at most 7 characters",
    "rle-negative-run": "no run is negative",
    "rle-overflow": "runs do not exceed the image",
    "rle-sum": "runs fill the image",
    "rle-runs": "a mask has not more runs than the limit",
    "empty-mask": "the mask of a pair that is asked for is not empty (warning)",
    # one study
    "unknown-study": "the study is one of the split, its id written exactly so",
    "duplicate-study": "a study is predicted once",
    "mixed-kinds": "all lines give labels, or all give probabilities",
    "duplicate-label": "a label stands once",
    "missing-labels": "the probabilities of all labels are given",
    "missing-studies": "every study is predicted (a warning when missing studies are allowed)",
    # one task
    "unknown-task": "the task is one of the split, its id written exactly so",
    "duplicate-task": "a task is answered once",
    "empty-answer": "an answer holds text",
    "boxes": "an answer has not more boxes than the limit",
    "missing-boxes": "a task that asks for boxes gets some (warning)",
    "missing-tasks": "every task is answered (a warning when missing tasks are allowed)",
    # the predictions together
    "duplicate-pair": "an image and finding are predicted once, except in COCO results",
    "not-asked": "pairs are predicted that the split asks for; others are not scored (warning)",
    "missing-pairs": "every pair asked for is predicted (a warning when missing pairs are allowed)",
    "normalised-coordinates": "coordinates are not all in [0, 1] (warning)",
    "resized-coordinates": "coordinates are not all within 1024 pixels of much larger images (warning)",
    "exchanged-axes": "points outside the image are not inside with x and y exchanged (warning)",
    "same-answer": "not more than 90 % of at least 20 predictions of a finding are one cell or point (warning)",
}
