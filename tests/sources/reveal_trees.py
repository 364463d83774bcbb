"""Small trees of DICOM files with a table and a mapping, which tests damage."""

import numpy as np

from reveal_bench.dicom import write_dicom

KEY = bytes(range(32))
"""Secret of the ids."""

CR = "1.2.840.10008.5.1.4.1.1.1"

TABLE = """study,labels,agree,sex
1.2.1,Airspace opacity; COPD,3 of 3,Female
1.2.2,None,2 of 3,Male
1.2.3,lung_nodule,3 of 3,
"""

MAPPING = """table: table.csv
study_key: {column: study, matches: StudyInstanceUID}
labels: {list: {column: labels, separator: ";"}}
agreement: {column: agree, values: {3 of 3: three_of_three, 2 of 3: two_of_three}}
demographics: {sex: {column: sex, values: {Female: F, Male: M}}}
"""


def write_film(
    path, study="1.2.1", number=1, *, patient=None, view="AP", value=7, shape=(6, 8), pixels=None, **attributes
):
    """One image: pixels of one value unless given, and the smallest header that is accepted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {
        "SOPClassUID": CR,
        "Modality": "CR",
        "StudyInstanceUID": study,
        "SeriesInstanceUID": f"{study}.{number}",
        "SOPInstanceUID": f"{study}.{number}.1",
        "PatientID": patient or f"P{study[-1]}",
        "ViewPosition": view,
        "InstanceNumber": str(number),
        "PatientIdentityRemoved": "YES",
        "DeidentificationMethodCodeSequence": [{"CodeValue": "113100"}, {"CodeValue": "113101"}],
        **attributes,
    }
    write_dicom(path, np.full(shape, value, np.uint16) if pixels is None else pixels, header, bits_stored=12)


def write_tree(root, *, table=TABLE, mapping=MAPPING, name="table.csv"):
    """Three studies with one, two and one image; folder names are misleading on purpose."""
    write_film(root / "a" / "1.dcm", "1.2.1")
    write_film(root / "a" / "2.dcm", "1.2.2")
    write_film(root / "b" / "3", "1.2.2", 2, view="LL")
    write_film(root / "c" / "4.dicom", "1.2.3", view="PA")
    if table is not None:
        (root / name).write_text(table, encoding="utf-8")
    if mapping is not None:
        (root / "mapping.yaml").write_text(mapping, encoding="utf-8")
    return root


def decade(years):
    """Return the decade of an age, by hand."""
    if years is None:
        return "unknown"
    return "80+" if years >= 80 else f"{years - years % 10}-{years - years % 10 + 9}"


def everything(value):
    """All bytes and texts below a value, such as the rows of a table."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from everything(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from everything(inner)
    elif isinstance(value, bytes):
        yield value
    elif value is not None:
        yield str(value).encode()
