"""The policy's settings: one file, parsed strictly."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
from reveal_leaderboard.settings import (
    PACKAGED,
    AccountsPolicy,
    ExposurePolicy,
    QuotaPolicy,
    ReadingPolicy,
    ReleasePolicy,
    RoundPolicy,
    SettingsError,
    Webhook,
    load_settings,
    webhook_keys,
)

PACKAGED_SETTINGS = tomllib.loads(PACKAGED.read_text(encoding="utf-8"))


def write(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_packaged_settings_equal_the_defaults() -> None:
    settings = load_settings().of("chexlocalize")
    assert (settings.release.min_cell, settings.release.resolution, settings.quota.total) == (30, 0.01, "by holdout")
    assert (settings.release, settings.quota, settings.exposure) == (ReleasePolicy(), QuotaPolicy(), ExposurePolicy())
    assert "Saporta" in settings.citation


def test_packaged_file_explains_every_setting() -> None:
    """A setting that the page "About" does not print would be a hidden policy."""
    policies = {"release": ReleasePolicy, "quota": QuotaPolicy, "exposure": ExposurePolicy, "reading": ReadingPolicy,
                "accounts": AccountsPolicy, "round": RoundPolicy}  # fmt: skip
    for table, policy in policies.items():
        assert set(PACKAGED_SETTINGS[table]) == set(asdict(policy())), table
    lines = PACKAGED.read_text(encoding="utf-8").splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"\w+ = ", line) and not line.startswith(("citation", "terms", "seed", "closes")):
            assert before.startswith("# "), line


def test_operator_changes_single_settings(tmp_path: Path) -> None:
    text = "[quota]\ntotal = 5\n[benchmarks.reveal-cxr.release]\nmin_cell = 50\nbands = [50, 100]\n"
    text += "band_resolution = [0.1, 0.05]\n"
    settings = load_settings(write(tmp_path, text))
    assert settings.of("reveal-cxr").release == ReleasePolicy(min_cell=50, bands=(50, 100), band_resolution=(0.1, 0.05))
    assert settings.of("reveal-cxr").quota == QuotaPolicy(total=5)
    assert settings.of("chexlocalize").release == ReleasePolicy()
    assert settings.of("nobody-knows-it").quota.total == 5


@pytest.mark.parametrize(
    ("least", "bands", "steps"),
    [  # the packaged bands are 30, 60, 120 with 0.1, 0.05, 0.01
        (10, (10, 30, 60, 120), (0.1, 0.1, 0.05, 0.01)),
        (30, (30, 60, 120), (0.1, 0.05, 0.01)),
        (60, (60, 120), (0.05, 0.01)),
        (100, (100, 120), (0.05, 0.01)),
        (500, (500,), (0.01,)),
    ],
)
def test_min_cell_alone_moves_the_bands(
    tmp_path: Path, least: int, bands: tuple[int, ...], steps: tuple[float, ...]
) -> None:
    of_all = load_settings(write(tmp_path, f"[release]\nmin_cell = {least}\n"))
    of_one = load_settings(write(tmp_path, f"[benchmarks.chexlocalize.release]\nmin_cell = {least}\n"))
    for settings in (of_all, of_one, load_settings(write(tmp_path, of_one.to_toml()))):
        release = settings.of("chexlocalize").release
        assert (release.min_cell, release.bands, release.band_resolution) == (least, bands, steps)
    assert of_one.of("reveal-cxr").release == ReleasePolicy()


def test_operator_may_require_approval_of_new_teams(tmp_path: Path) -> None:
    assert load_settings().accounts == AccountsPolicy(new_teams="asked")
    asked = load_settings(write(tmp_path, '[accounts]\nnew_teams = "open"\n'))
    assert asked.accounts.new_teams == "open"
    assert 'new_teams = "open"' in asked.to_toml().splitlines()
    assert load_settings(write(tmp_path, asked.to_toml())).accounts == asked.accounts


def test_integers_are_numbers_and_stay_integers(tmp_path: Path) -> None:
    step = load_settings(write(tmp_path, "[release]\nladder_step = 0\n")).of("reveal-cxr").release.ladder_step
    assert step == 0
    assert type(step) is int  # receipts print it as the file does


RULES = {
    "unknown table": ("[realese]\nmin_cell = 30", "`realese` is not a setting .nearest: `release`"),
    "unknown key": ("[release]\nmincell = 30", "`release.mincell` is not a setting .nearest: `release.min_cell`"),
    "key outside a table": ("min_cell = 30", "`min_cell` is not a setting"),
    "table that is a number": ("release = 3", "`release` must be a table, got 3"),
    "text for a number": ('[release]\nmin_cell = "30"', "`release.min_cell` must be a valid integer, got '30'"),
    "fraction of a case": (
        "[release]\nmin_cell = 30.5",
        "`release.min_cell` must be a valid integer, got 30.5",
    ),
    "true is not a number": ("[quota]\ntotal = true", "`quota.total` must be .* got True"),
    "too small a cell": ("[release]\nmin_cell = 1", "`release.min_cell` must be greater than or equal to 10, got 1"),
    "too fine": (
        "[release]\nresolution = 0.001",
        "`release.resolution` must be greater than or equal to 0.01, got 0.001",
    ),
    "steps that do not reach 1": ("[release]\nresolution = 0.03", "`release.resolution` must divide 1, got 0.03"),
    "finer for fewer": (
        "[release]\nband_resolution = [0.05, 0.1, 0.01]",
        "`release.band_resolution` must not increase",
    ),
    "steps that do not divide 1": (
        "[release]\nplace_factor = 3",
        "`release.place_factor` must give steps of at most 0.5 that divide 1 when multiplied by release.band_res",
    ),
    "too few steps": ("[release]\nbands = [30, 60]", "`release.band_resolution` must have a number for each of rel"),
    "not a number": ("[release]\nresolution = nan", "got nan"),
    "infinite": ("[exposure]\nclose_bits = inf", "got inf"),
    "bands descend": ("[release]\nbands = [30, 20]", "`release.bands` must ascend, got"),
    "no bands": ("[release]\nbands = []", "`release.bands` must have at least 1 item, got"),
    "bands of texts": ('[release]\nbands = ["30"]', "`release.bands.0` must be a valid integer, got '30'"),
    "bands begin elsewhere": (
        "[release]\nmin_cell = 40\nbands = [30, 60, 120]",
        "`release.bands` must begin with release.min_cell.*30",
    ),
    "unknown ladder": ('[release]\nladder_per = "user"', "`release.ladder_per` must be .* got 'user'"),
    "all patients kept": ("[release]\nfinal_share = 1.0", "`release.final_share` must be .* got 1.0"),
    "no reader": ("[reading]\nreaders_per_answer = 0", "`reading.readers_per_answer` must be .* to 1, got 0"),
    "unknown way in": ('[accounts]\nnew_teams = "closed"', "`accounts.new_teams` must be .*, got 'closed'"),
    "true is no way in": ("[accounts]\nnew_teams = true", "`accounts.new_teams` must be 'open' or 'asked', got True"),
    "unknown account key": ('[accounts]\nteams = "open"', "`accounts.teams` is not a setting"),
    "accounts of one": (
        '[benchmarks.reveal-cxr.accounts]\nnew_teams = "asked"',
        "`benchmarks.reveal-cxr.accounts` is not a setting",
    ),
    "no quota": ("[quota]\ntotal = 0", "`quota.total` must be .* got 0"),
    "more a day than ever": (
        "[quota]\ntotal = 10\nper_day = 11",
        "`quota.per_day` must not exceed quota.total, got 11",
    ),
    "more a team than all": (
        "[quota]\ntotal = 3\nboard_total = 2",
        "`quota.total` must not exceed quota.board_total, got 3",
    ),
    "closes before it opens": (
        '[round]\nopens = "2027-03-01T12:00Z"\ncloses = "2027-03-01T12:00Z"',
        "`round.closes` must be after round.opens, got '2027-03-01T12:00Z'",
    ),
    **{
        f"closes at {time}": (f'[round]\ncloses = "{time}"', "`round.closes` must be a UTC time such as .*, got '")
        for time in (
            "2027-03-01T12:00",
            "2027-03-01T12:00+01:00",
            "1 March",
            "2027-02-30T12:00Z",
            "Z",
            "2027-W01-1T12:00Z",
            "2027-03-01T12:00:30Z",
        )
    },
    "close before watch": ("[exposure]\nwatch_bits = 9", "`exposure.watch_bits` must not exceed exposure.close_bits"),
    "two lines": ('[about]\nterms = "a\\nb"', "`about.terms` must be one line"),
    "unknown benchmark": (
        "[benchmarks.chexlocalise.quota]\ntotal = 3",
        "must be one of chexlocalize, .* 'chexlocalise'",
    ),
    "unknown key of one": (
        "[benchmarks.reveal-cxr.quota]\nall = 3",
        "`benchmarks.reveal-cxr.quota.all` is not a setting",
    ),
    "rule of one": (
        "[benchmarks.reveal-cxr.quota]\ntotal = 1",
        "`benchmarks.reveal-cxr.quota.per_day` must not exceed quota.total, got 2",
    ),
    "benchmarks is a list": ("benchmarks = []", r"`benchmarks` must be a table, got \[\]"),
    "a benchmark is a number": ("[benchmarks]\nreveal-cxr = 1", "`benchmarks.reveal-cxr` must be a table, got 1"),
    "no TOML": ("[release", "must be TOML"),
    "webhooks is a list": ("webhooks = []", r"`webhooks` must be a table, got \[\]"),
    "a webhook is a text": ('[webhooks]\nchat = "https://a.example"', "`webhooks.chat` must be a table, got 'https"),
    "a webhook without events": ('[webhooks.a]\nurl = "https://a.example"', "`webhooks.a.events` is missing"),
    "a webhook's name": (
        '[webhooks.A_B]\nurl = "https://a.example"',
        "`webhooks.A_B` must match pattern .*, got 'A_B'",
    ),
    "a webhook's secret": (
        '[webhooks.a]\nurl = "https://a.example"\nevents = ["scored"]\nsecret = "x"',
        "`webhooks.a.secret` is not a setting",
    ),
    **{
        f"a webhook to {url}": (
            f'[webhooks.a]\nevents = ["scored"]\nurl = "{url}"',
            "`webhooks.a.url` must be https://",
        )
        for url in (
            "http://a.example",
            "http://10.0.0.1",
            "ftp://a.example",
            "https://",
            "https://me:pw@a.example",
            "https://a.example/#b",
            "https://a.example:x",
            "",
        )
    },
    **{
        f"a webhook of {events}": (
            f'[webhooks.a]\nurl = "https://a.example"\nevents = {events}',
            rf"`webhooks.a.events(\.0)?` must be {rule}",
        )
        for events, rule in {
            "[]": "a list of some of scored, withdrawn, flagged, got",
            '["hidden"]': "a list of some of scored, withdrawn, flagged, got",
            '["scored", "scored"]': "a list of some of scored, withdrawn, flagged, got",
            '[["scored"]]': "a valid string, got",
            '"scored"': "a list, got 'scored'",
        }.items()
    },
}


@pytest.mark.parametrize("case", RULES)
def test_broken_rule_names_file_key_rule_and_value(case: str, tmp_path: Path) -> None:
    text, message = RULES[case]
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=f"{re.escape(str(path))}: .*{message}"):
        load_settings(path)


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read"):
        load_settings(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"bytes\.toml: must be TOML"):
        load_settings(tmp_path / "bytes.toml")


def test_printed_settings_are_those_in_force(tmp_path: Path) -> None:
    """The printed text parses to the same settings, and keeps the comments."""
    text = '[quota]\ntotal = 7\n[about]\ncitation = "Doe: \\"A\\" \\\\ B, π"\n[benchmarks.ms-cxr.quota]\nper_day = 1\n'
    settings = load_settings(write(tmp_path, text))
    printed = settings.to_toml()
    again = load_settings(write(tmp_path, printed))
    for benchmark in ("ms-cxr", "chexlocalize", "reveal-cxr"):
        assert again.of(benchmark) == settings.of(benchmark)
    assert again.of("ms-cxr").citation == 'Doe: "A" \\ B, π'
    assert "total = 7" in printed.splitlines()
    assert (
        "# Settings of the leaderboard: how precisely it shows scores, and how many submissions it accepts." in printed
    )
    assert tomllib.loads(load_settings().to_toml()) == PACKAGED_SETTINGS


def test_the_document_is_json() -> None:
    document = json.loads(json.dumps(load_settings().document("reveal-cxr"), allow_nan=False))
    assert document["release"]["bands"] == [30, 60, 120]
    assert document["quota"] == {"total": "by holdout", "per_day": 2, "board_total": 150}
    assert document["reading"] == {"readers_per_answer": 2, "team": ""}
    assert set(document) == {
        "release",
        "quota",
        "exposure",
        "reading",
        "round",
        *("citation", "terms", "host", "contact"),
    }


def test_webhooks_are_parsed_but_never_printed(tmp_path: Path) -> None:
    text = '[webhooks.a-1]\nurl = "https://a.example/x?token=t"\nevents = ["flagged", "scored"]\n'
    text += '[webhooks.b]\nurl = "http://localhost:1"\nevents = ["withdrawn"]\nprivate = true\n'
    settings = load_settings(write(tmp_path, text))
    assert settings.webhooks == {
        "a-1": Webhook("https://a.example/x?token=t", ("flagged", "scored")),
        "b": Webhook("http://localhost:1", ("withdrawn",), private=True),
    }
    assert settings.to_toml() == load_settings().to_toml()
    assert settings.document("chexlocalize") == load_settings().document("chexlocalize")
    assert load_settings().webhooks == {}


KEY = "whsec_" + "QUJD" * 8  # "ABC" eight times


def test_webhook_keys_come_from_environment_or_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\nwhsec_{'REVG' * 9}\n")
    name = "REVEAL_WEBHOOK_A_1_SECRET"
    assert webhook_keys("a-1", {name: KEY}) == (b"ABC" * 8,)
    assert webhook_keys("a-1", {f"{name}_FILE": str(file), name: "other"}) == (b"ABC" * 8, b"DEF" * 9)
    assert webhook_keys("a-1", {"REVEAL_WEBHOOK_B_SECRET": KEY}) == ()
    for wrong in ("x", "QUJD" * 8, "whsec_" + "QUJD" * 7, "whsec_" + "QUJD" * 22, KEY + "!", f"{KEY} x"):
        with pytest.raises(SettingsError, match=f"{name} must be whsec_ followed by 24 to 64 bytes") as refusal:
            webhook_keys("a-1", {name: wrong})
        assert "QUJD" not in str(refusal.value)
    with pytest.raises(SettingsError, match=f"{name}_FILE must be a readable text file"):
        webhook_keys("a-1", {f"{name}_FILE": str(tmp_path)})
