"""Sessions and tokens."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.credentials import TokenError
from reveal_leaderboard.store import tables
from reveal_leaderboard.store.database import now

from tests.leaderboard.databases import on_both
from tests.leaderboard.people_world import accounts, engine, later, me, person, steps, team_of

__all__ = ["accounts", "engine"]

HOUR, DAY = 3600.0, 86400.0


# Sessions


@on_both
def test_a_session_lasts_twelve_hours(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    secret = accounts.new_session(jane)
    later(engine, tables.sessions, 12 * HOUR - 60, "created_at", "expires_at")
    actor = accounts.session_user(secret)
    assert (actor.user, actor.scopes, actor.via) == (jane, frozenset({"read", "submit"}), "session")
    later(engine, tables.sessions, 120, "created_at", "expires_at")
    assert accounts.session_user(secret) is None
    accounts.new_session(jane)
    with engine.connect() as connection:  # the next sign-in cleared the old one away
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.sessions)).scalar_one() == 1


def test_signing_in_again_rotates_and_signing_out_ends(accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    first = accounts.new_session(jane)
    second = accounts.new_session(jane, instead_of=first)
    elsewhere = accounts.new_session(jane)
    assert accounts.session_user(first) is None
    accounts.end_session(second)
    accounts.end_session("no session at all")
    assert accounts.session_user(second) is None
    assert accounts.session_user(elsewhere) is not None


@pytest.mark.parametrize("secret", ["", "x", "x" * 5000, "\ud800", "' OR 1=1 --"])
def test_what_is_no_session_is_nobody(accounts: Accounts, secret: str) -> None:
    accounts.new_session(person(accounts, "jane"))
    assert accounts.session_user(secret) is None


# Tokens


@on_both
def test_the_life_of_a_token(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    lab = team_of(accounts, jane)
    token, secret = accounts.issue_token(jane, lab, name="laptop")
    assert secret.startswith("rvl_")
    assert len(secret) == 4 + 43  # 32 bytes in base64 without padding
    assert token.expires_at - token.created_at == pytest.approx(90 * DAY)
    actor = accounts.token_actor(secret)
    assert (actor.user, actor.via, actor.team(lab.id)) == (jane, "token", lab)
    assert accounts.revoke_token(token.id, me(jane))
    assert accounts.token_actor(secret) is None
    assert not accounts.revoke_token(token.id, me(jane))
    assert accounts.tokens_of(jane)[0].revoked_at is not None
    assert steps(engine, f"token:{token.id}") == ["issued", "revoked"]


def test_a_token_expires(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    _, secret = accounts.issue_token(jane, team_of(accounts, jane), name="short", days=1)
    later(engine, tables.tokens, DAY - 60, "created_at", "expires_at")
    assert accounts.token_actor(secret) is not None
    later(engine, tables.tokens, 120, "created_at", "expires_at")
    assert accounts.token_actor(secret) is None


@on_both
def test_a_tokens_use_is_noted_once_a_minute(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    _, secret = accounts.issue_token(jane, team_of(accounts, jane), name="laptop")
    assert accounts.tokens_of(jane)[0].used_at is None
    accounts.token_actor(secret)
    first = accounts.tokens_of(jane)[0].used_at
    assert first is not None
    accounts.token_actor(secret)
    assert accounts.tokens_of(jane)[0].used_at == first
    later(engine, tables.tokens, 61, "used_at")
    accounts.token_actor(secret)
    assert (accounts.tokens_of(jane)[0].used_at or 0.0) >= first


def test_a_token_is_for_one_team_and_ends_with_the_membership(accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab, other = team_of(accounts, jane), team_of(accounts, bob, "Other")
    accounts.add_member(lab, bob, "member", "cli")
    _, secret = accounts.issue_token(bob, lab, name="laptop")
    actor = accounts.token_actor(secret)
    assert actor.team(lab.id) == lab
    assert actor.team(other.id) is None
    accounts.remove_member(lab, bob, me(jane))
    assert accounts.token_actor(secret) is None
    accounts.add_member(lab, bob, "member", "cli")
    assert accounts.token_actor(secret) is None  # it was revoked, not asleep


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"days": 0}, "days must be 1 to 366, got 0"),
        ({"days": 367}, "days must be 1 to 366, got 367"),
        ({"scopes": ()}, "scopes must be one or more of read, submit, admin, got none"),
        ({"scopes": ("read", "root")}, "scopes must be one or more of"),
        ({"scopes": ("admin",)}, "scopes must not include admin"),
        ({"name": ""}, "name must be 1-64"),
        ({"name": "<b>"}, "name must be 1-64"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "rule",
)
def test_a_token_asked_for_wrongly_is_refused(accounts: Accounts, asked: dict[str, Any], rule: str) -> None:
    jane = person(accounts, "jane")
    with pytest.raises(TokenError, match=rule):
        accounts.issue_token(jane, team_of(accounts, jane), **{"name": "laptop", **asked})
    assert accounts.tokens_of(jane) == []


def test_a_token_needs_a_place_in_the_team(accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    with pytest.raises(TokenError, match="an open team of yours"):
        accounts.issue_token(bob, lab, name="laptop")
    accounts.add_member(lab, bob, "reader", "cli")
    with pytest.raises(TokenError, match="because you are a reader of Example Lab"):
        accounts.issue_token(bob, lab, name="laptop")
    token, _ = accounts.issue_token(bob, lab, name="laptop", scopes=["read"])
    assert token.scopes == ("read",)


@pytest.mark.parametrize(("scopes", "is_admin"), [(("read", "submit"), False), (("read", "admin"), True)])
def test_an_administrators_token_is_one_only_with_the_scope(
    accounts: Accounts, scopes: tuple[str, ...], is_admin: bool
) -> None:
    root = person(accounts, "root", as_admin=True)
    _, secret = accounts.issue_token(root, team_of(accounts, root), name="laptop", scopes=scopes)
    actor = accounts.token_actor(secret)
    assert (actor.is_admin, actor.may("admin"), actor.may("submit")) == (is_admin, is_admin, not is_admin)
    accounts.set_admin(root, False, "cli")
    demoted = accounts.token_actor(secret)
    assert not demoted.is_admin


def test_anothers_token_looks_like_none(accounts: Accounts) -> None:
    jane, bob, root = person(accounts, "jane"), person(accounts, "bob"), person(accounts, "root", as_admin=True)
    token, secret = accounts.issue_token(jane, team_of(accounts, jane), name="laptop")
    assert not accounts.revoke_token(token.id, me(bob))
    assert accounts.token_actor(secret) is not None
    assert accounts.revoke_token(token.id, me(root))


@on_both
def test_a_leaked_token_is_found_and_ended_by_an_administrator(engine: sa.Engine, accounts: Accounts) -> None:
    jane, root = person(accounts, "jane"), person(accounts, "root", as_admin=True)
    lab = team_of(accounts, jane)
    token, secret = accounts.issue_token(jane, lab, name="cluster")
    kept, kept_secret = accounts.issue_token(jane, lab, name="laptop")
    assert {(one.name, owner, one.team.name) for one, owner in accounts.live_tokens()} == {
        ("cluster", "jane", "Example Lab"),
        ("laptop", "jane", "Example Lab"),
    }
    assert accounts.token_id_of(secret) == token.id
    assert accounts.revoke_token(token.id, me(root), "it stood in a public repository")
    assert accounts.token_actor(secret) is None
    assert accounts.token_actor(kept_secret) is not None  # the account and the other token are as before
    assert [one.id for one, _ in accounts.live_tokens()] == [kept.id]
    assert accounts.token_id_of(secret) == token.id
    assert not accounts.revoke_token(token.id, "cli", "again")
    assert accounts.why_revoked(jane) == {token.id: "it stood in a public repository"}
    assert accounts.why_revoked(root) == {}
    assert steps(engine, f"token:{token.id}") == ["issued", "revoked"]


@pytest.mark.parametrize("over", ["expired", "revoked"])
def test_only_tokens_that_work_are_listed_as_live(engine: sa.Engine, accounts: Accounts, over: str) -> None:
    jane = person(accounts, "jane")
    token, _ = accounts.issue_token(jane, team_of(accounts, jane), name="laptop", days=1)
    accounts.disable(token.team, "cli")
    assert [one.id for one, _ in accounts.live_tokens()] == [token.id]  # asleep: it works again with the team
    if over == "expired":
        later(engine, tables.tokens, DAY + 1, "created_at", "expires_at")
    else:
        accounts.revoke_token(token.id, "cli", "leaked")
    assert accounts.live_tokens() == []


@pytest.mark.parametrize("secret", ["", "rvl_", "rvl_" + "x" * 43, "rvl_" + "x" * 5000, "rvl_\ud800", "' OR 1=1 --"])
def test_what_is_no_secret_is_of_no_token(accounts: Accounts, secret: str) -> None:
    jane = person(accounts, "jane")
    accounts.issue_token(jane, team_of(accounts, jane), name="laptop")
    assert accounts.token_id_of(secret) is None


def test_fifty_tokens_are_enough(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    lab = team_of(accounts, jane)
    first, _ = accounts.issue_token(jane, lab, name="t0")
    with engine.begin() as connection:
        row = {"user_id": jane.id, "team_id": lab.id, "name": "t", "scopes": ["read"]}
        moments = {"created_at": now(), "expires_at": now() + DAY}
        for i in range(49):
            values = {**row, **moments, "id": f"t{i}", "key_hash": f"{i:064d}"}
            connection.execute(tables.tokens.insert().values(**values))
    with pytest.raises(TokenError, match="50 tokens may be valid"):
        accounts.issue_token(jane, lab, name="one-too-many")
    accounts.revoke_token(first.id, me(jane))
    accounts.issue_token(jane, lab, name="again")


# What is kept


def test_no_secret_and_no_name_is_kept_where_it_must_not(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane.the.reader")
    session = accounts.new_session(jane)
    _, secret = accounts.issue_token(jane, team_of(accounts, jane), name="laptop")
    accounts.token_actor(secret)
    with engine.connect() as connection:
        rows = {t.name: repr(connection.execute(sa.select(t)).all()) for t in tables.tables.sorted_tables}
    everything = "".join(rows.values())
    assert session not in everything
    assert secret not in everything
    assert secret.removeprefix("rvl_") not in everything
    assert "jane.the.reader" not in rows["events"]
    assert hashlib.sha256(secret.encode()).hexdigest() in rows["tokens"]
