"""Votes from a table: the paper's spellings, all problems at once with their places, and no study that is silently
incomplete.
"""

import json

import pytest

from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.tables import Assignment, Sampled, Vote, read_table, write_table
from reveal_bench.curation.votes import import_votes, spelled_answer, vote_counts
from reveal_bench.sources.source import BuildError

AO, PE = "Airspace opacity", "Pleural effusion"
SAMPLED = [Sampled("s1", "p1", (AO,), 1), Sampled("s2", "p2", (AO, PE), 2), Sampled("s3", "p3", (PE,), 1)]
ASSIGNED = [
    Assignment(reader, i, study)
    for reader, own in {"ann": "123", "bob": "231", "cyd": "312", "dan": ""}.items()
    for i, study in enumerate((f"s{n}" for n in own), start=1)
]
HEAD = "study,reader,answer,comment,labels\n"
FULL = HEAD + "".join(f"{one.study_id},{one.reader},agree all,,\n" for one in ASSIGNED)


def curation(tmp_path):
    """A folder in which assign is done."""
    folder = CurationFolder.create(tmp_path / "c", name="test")

    def put(name, rows, kind):
        def work(scratch):
            write_table(scratch / name, rows, kind)
            return {}

        return work

    folder.run("extract", {}, lambda scratch: {}, writes=[])
    folder.run("sample", {}, put("sample.parquet", SAMPLED, Sampled), writes=["sample.parquet"])
    folder.run("assign", {}, put("assignments.parquet", ASSIGNED, Assignment), writes=["assignments.parquet"])
    return folder


def imported(tmp_path, text, name="votes.csv", **options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    folder = curation(tmp_path)
    record = import_votes(folder, path, **options)
    return record, read_table(folder.path("votes.parquet"), Vote)


def failed(tmp_path, text, **options):
    with pytest.raises(BuildError) as caught:
        imported(tmp_path, text, allow_missing=True, **options)
    return [str(problem) for problem in caught.value.problems]


DEGENERATE = {
    "empty": ("", "votes.csv: `file` must have a row of column names, got an empty table"),
    "no votes": (HEAD, "votes.csv: `rows` must contain at least one row"),
    "no answers": ("study,reader\ns1,ann\n", "votes.csv: `column` must be a column of votes.csv, got 'answer'"),
    "no names at all": ("1,2,3\n4,5,6\n", "`column` must be a column of votes.csv, got 'study'"),
    "column twice": ("study,study,reader,answer\n", "`columns` must have different names, got study more than once"),
    "a cell too few": (HEAD + "s1,ann,agree all\n", "votes.csv:2: `row` must have 5 cells, like the header, got 3"),
    "no study": (HEAD + ",ann,agree all,,\n", "votes.csv:2: `study` must not be blank, got a blank cell"),
    "no reader": (HEAD + "s1,,agree all,,\n", "votes.csv:2: `reader` must not be blank"),
    "no answer": (HEAD + "s1,ann,,fine,\n", "votes.csv:2: `answer` must not be blank"),
    "unknown study": (HEAD + "s9,ann,agree all,,\n", "votes.csv:2: `study` must be a study of the sample, got 's9'"),
    "unknown reader": (HEAD + "s1,amn,agree all,,\n", "`reader` must be a reader who was .* got 'amn' .nearest: 'ann'"),
    "unknown answer": (
        HEAD + "s1,ann,Agree Mosty,,\n",
        "`answer` must be one of agree_all, agree_mostly, disagree, got",
    ),
    "twice": (
        HEAD + "s1,ann,disagree,,\ns2,ann,disagree,,\ns1,ann,disagree,,\n",
        "votes.csv:4: `study` must be answered once by a reader, got 's1' of 'ann' again, first in votes.csv:2",
    ),
    "unknown label": (HEAD + "s1,ann,disagree,,Kyphosis\n", "`labels` must be one of the twelve .*, got 'Kyphosis'"),
    "label twice": (HEAD + "s1,ann,disagree,,COPD; copd\n", "`labels` must name each label once, got COPD again"),
    "none beside a label": (HEAD + "s1,ann,disagree,,None; COPD\n", 'must not contain both "None" and a label'),
    "agreed to others": (
        HEAD + "s1,ann,agree all,,COPD\n",
        "must be blank or the suggested labels if the answer is agree_all",
    ),
    "agreed to none": (HEAD + "s1,ann,agree all,,None\n", "`labels` must be blank or .*, got None"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables(tmp_path, name):
    text, message = DEGENERATE[name]
    with pytest.raises(BuildError, match=message):
        imported(tmp_path, text, allow_missing=True)


def test_a_reader_without_the_study(tmp_path):
    short = [one for one in ASSIGNED if one != Assignment("cyd", 3, "s2")]
    path = tmp_path / "moved.parquet"
    write_table(path, short, Assignment)
    problems = failed(tmp_path, FULL, reassigned=path)
    assert problems == ["votes.csv:10: `study` must be assigned to the reader, got 's2' for 'cyd'"]


def test_all_problems_at_once_with_their_columns(tmp_path):
    text = "uid;who;said\ns9;ann;agree all\ns1;zed;maybe\ns1;ann;agree all\ns1;ann;disagree\n"
    problems = failed(tmp_path, text, columns={"study": "uid", "reader": "who", "answer": "said"})
    assert len(problems) == 4
    for problem, start in zip(
        problems, ["votes.csv:2: `uid`", "votes.csv:3: `who`", "votes.csv:3: `said`", "votes.csv:5: `uid`"], strict=True
    ):
        assert problem.startswith(start)


def test_a_missing_file_and_unknown_columns(tmp_path):
    folder = curation(tmp_path)
    with pytest.raises(BuildError, match="`file` must exist"):
        import_votes(folder, tmp_path / "none.csv")
    path = tmp_path / "votes.csv"
    path.write_text(FULL)
    with pytest.raises(ValueError, match=r"`columns` must be among study, reader, .* got 'vote'"):
        import_votes(folder, path, columns={"vote": "answer"})
    with pytest.raises(BuildError, match="got 'note'; it has study"):  # a column that was named must be there
        import_votes(folder, path, columns={"comment": "note"})


SPELLINGS = {
    "agree_all": ["Agree All", "agree all", "Agree all", "AGREE_ALL", " agree-all ", "Agree"],
    "agree_mostly": ["Agree Mostly", "agree mostly", "agree_mostly", "Agree  mostly"],
    "disagree": ["Disagree", "disagree", "DISAGREE"],
}


@pytest.mark.parametrize(("answer", "spelling"), [(a, one) for a, spelled in SPELLINGS.items() for one in spelled])
def test_the_paper_s_spellings(answer, spelling):
    """ "Agree All" in section 2.2, "Agree all" in the abstract, 'agree all' in section 4, "Agree" in Figure 2."""
    assert spelled_answer(spelling) == answer


@pytest.mark.parametrize("text", ["", "all", "mostly", "yes", "agree some", "disagree all", "no"])
def test_nothing_is_guessed(text):
    assert spelled_answer(text) is None


def test_comments_and_labels_are_kept(tmp_path):
    text = (
        'study,reader,answer,comment,labels\ns2,ann,Agree All,"faint, but\nthere",'
        '"pleural effusion; Airspace Opacity"\n'
        "s1,ann,Disagree,no opacity,None\ns3,ann,Agree Mostly,,\ns1,bob,Disagree,,copd;lung_mass\n"
    )
    record, votes = imported(tmp_path, text, allow_missing=True)
    assert votes == [
        Vote("s1", "ann", "disagree", "no opacity", ()),
        Vote("s1", "bob", "disagree", "", ("COPD", "Lung mass")),
        Vote("s2", "ann", "agree_all", "faint, but\nthere", (AO, PE)),
        Vote("s3", "ann", "agree_mostly", "", None),
    ]
    counts = record.counts
    assert (counts["comments"], counts["comments_with_agree_all"], counts["with_labels"]) == (2, 1, 3)
    assert counts["studies_by_votes"] == {"0": 0, "1": 2, "2": 1, "3": 0}
    assert counts["answers"] == {"agree_all": 1, "agree_mostly": 1, "disagree": 2}
    assert counts["by_reader"]["ann"] == {"assigned": 3, "votes": 3}
    assert counts["missing"] == 5


def test_json_lines_with_lists(tmp_path):
    rows = [{"study": one.study_id, "reader": one.reader, "answer": "disagree", "labels": [PE]} for one in ASSIGNED]
    rows[0]["labels"] = []
    _, votes = imported(tmp_path, "\n".join(map(json.dumps, rows)), "votes.jsonl")
    assert len(votes) == 9
    assert {vote.labels for vote in votes} == {(), (PE,)}


def test_a_full_table_whatever_its_order(tmp_path):
    lines = FULL.splitlines()
    for name, text in (("a", FULL), ("b", "\n".join([lines[0], *lines[:0:-1]]))):
        (tmp_path / name).mkdir()
        record, votes = imported(tmp_path / name, text)
        assert [(vote.study_id, vote.reader) for vote in votes] == sorted(
            (one.study_id, one.reader) for one in ASSIGNED
        )
        assert record.counts["studies_by_votes"] == {"0": 0, "1": 0, "2": 0, "3": 3}
        assert record.counts["missing"] == 0
    a, b = ((tmp_path / name / "c" / "votes.parquet").read_bytes() for name in "ab")
    assert a == b


def test_incomplete_studies_are_counted_and_refused(tmp_path):
    text = "\n".join(line for line in FULL.splitlines() if not line.startswith(("s1", "s2,cyd")))
    message = "got 2 without .1 with 0 votes, 1 with 2 votes., .*; `--allow-missing` .* the 4 missing votes"
    with pytest.raises(CurationError, match=message):
        imported(tmp_path, text)
    folder = CurationFolder(tmp_path / "c")
    assert folder.record("import-votes") is None
    record = import_votes(folder, tmp_path / "votes.csv", allow_missing=True)
    assert record.counts["studies_by_votes"] == {"0": 1, "1": 0, "2": 1, "3": 1}
    with pytest.raises(CurationError, match="allow_missing was True, is False"):
        import_votes(folder, tmp_path / "votes.csv")


def test_each_reader_may_have_a_table(tmp_path):
    head, *rows = ["study,reader,answer", *(f"{one.study_id},{one.reader},agree all" for one in ASSIGNED)]
    paths = []
    for reader in sorted({one.reader for one in ASSIGNED}):
        paths.append(tmp_path / f"{reader}.csv")
        paths[-1].write_text("\n".join([head, *(row for row in rows if f",{reader}," in row)]), encoding="utf-8")
    folder = curation(tmp_path)
    assert import_votes(folder, *paths).counts["votes"] == len(ASSIGNED)
    with pytest.raises(BuildError, match=r"`study` must be answered once by a reader, got .*, first in ann.csv:2"):
        import_votes(folder, *paths, paths[0], redo=True)


def given_up(tmp_path, *pairs):
    """Return the lists without some assignments, and the votes on the others."""
    left = [one for one in ASSIGNED if (one.study_id, one.reader) not in pairs]
    write_table(tmp_path / "lists.parquet", left, Assignment)
    return HEAD + "".join(f"{one.study_id},{one.reader},agree all,,\n" for one in left)


def test_assignments_given_up_are_missing(tmp_path):
    """s1 keeps one of its three readers and s3 none: 2 + 3 of 9 assignments are gone."""
    gone = [("s1", "bob"), ("s1", "cyd"), ("s3", "ann"), ("s3", "bob"), ("s3", "cyd")]
    text = given_up(tmp_path, *gone)
    lists = tmp_path / "lists.parquet"
    message = "got 2 without .1 with 0 votes, 1 with 1 vote., the first of them s1, s3; 5 assignments .* 5 missing"
    with pytest.raises(CurationError, match=message):
        imported(tmp_path, text, reassigned=lists)
    counts = import_votes(
        CurationFolder(tmp_path / "c"), tmp_path / "votes.csv", reassigned=lists, allow_missing=True
    ).counts
    assert {name: counts[name] for name in ("studies", "assigned", "given_up", "votes", "missing")} == {
        "studies": 3, "assigned": 9, "given_up": 5, "votes": 4, "missing": 5,
    }  # fmt: skip
    assert counts["studies_by_votes"] == {"0": 1, "1": 1, "2": 0, "3": 1}
    assert counts["by_reader"]["bob"] == {"assigned": 1, "votes": 1}


def test_reassigned_studies_are_not_given_up(tmp_path):
    moved = [Assignment("dan", 1, "s2") if one == Assignment("cyd", 3, "s2") else one for one in ASSIGNED]
    write_table(tmp_path / "lists.parquet", moved, Assignment)
    record, _ = imported(tmp_path, FULL.replace("s2,cyd", "s2,dan"), reassigned=tmp_path / "lists.parquet")
    assert (record.counts["given_up"], record.counts["missing"]) == (0, 0)
    assert record.counts["by_reader"]["dan"] == {"assigned": 1, "votes": 1}


OTHER_LISTS = {
    "another study": (
        [*ASSIGNED, Assignment("dan", 1, "s9")],
        "must have only assigned studies, got 1 others, the first of them 's9'",
    ),
    "one assignment more": (
        [*ASSIGNED, Assignment("dan", 1, "s1")],
        "must not have more assignments of a study than before, got 4 instead of 3 of 's1'; 1 studies have more",
    ),
    "a reader twice": (
        [*(one for one in ASSIGNED if one != Assignment("bob", 3, "s1")), Assignment("ann", 4, "s1")],
        "must give a reader a study once, got 's1' for 'ann' again",
    ),
}


@pytest.mark.parametrize("name", OTHER_LISTS)
def test_lists_of_something_else(tmp_path, name):
    lists, message = OTHER_LISTS[name]
    write_table(tmp_path / "lists.parquet", lists, Assignment)
    with pytest.raises(CurationError, match=message):
        imported(tmp_path, FULL, reassigned=tmp_path / "lists.parquet", allow_missing=True)


def test_lists_of_nobody_leave_everything_missing(tmp_path):
    write_table(tmp_path / "lists.parquet", [], Assignment)
    with pytest.raises(BuildError, match="must be a reader who was assigned studies"):
        imported(tmp_path, FULL, reassigned=tmp_path / "lists.parquet", allow_missing=True)


def test_counts_of_nothing():
    assert vote_counts([], [])["studies_by_votes"] == {"0": 0}
