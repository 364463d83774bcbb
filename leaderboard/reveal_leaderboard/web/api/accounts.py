"""Routes of the person who is asking: who they are, what they sent and spent, who invites them, and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from reveal_leaderboard.accounts import invitations
from reveal_leaderboard.accounts.credentials import TokenError
from reveal_leaderboard.accounts.people import Actor, NotPermittedError
from reveal_leaderboard.store import quota
from reveal_leaderboard.web.api.authentication import SIGN_IN, require_actor
from reveal_leaderboard.web.api.documents import (
    Account,
    ApiFault,
    ApiLedgerRow,
    ApiMembership,
    Budget,
    InvitationAnswer,
    InvitationDocument,
    InvitationList,
    LedgerDocument,
    LedgerList,
    SubmissionList,
    TokenDocument,
    TokenIssued,
    TokenList,
    TokenRequest,
)
from reveal_leaderboard.web.api.problems import ALWAYS, ProblemError, answers
from reveal_leaderboard.web.api.visibility import ID, find_published, submission_document, with_score
from reveal_leaderboard.web.services import Services

MOST_LISTED = 200
IN_BROWSER = answers("sign-in", "scope", "session-only", "invalid", *ALWAYS)


def account_routes(services: Services) -> APIRouter:
    """The routes below ``/me``."""
    router = APIRouter(dependencies=SIGN_IN)
    _add_account(router, services)
    _add_invitations(router, services)
    _add_tokens(router, services)
    return router


def _add_account(router: APIRouter, services: Services) -> None:
    signed_in = answers("sign-in", "scope", "invalid", *ALWAYS)

    @router.get("/me", responses=answers("sign-in", "scope", *ALWAYS))
    def me(request: Request) -> Account:
        """Who is asking, and for which teams."""
        actor = require_actor(services, request, "read")
        return Account(
            id=actor.user.id,
            name=actor.user.name,
            is_admin=actor.is_admin,
            via=actor.via,
            scopes=sorted(actor.scopes),
            teams=_teams(actor),
        )

    @router.get("/me/submissions", responses=signed_in)
    def mine(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
    ) -> SubmissionList:
        """The submissions of the asker's teams, the newest first."""
        actor = require_actor(services, request, "read")
        found = [one for membership in actor.memberships for one in services.store.of_team(membership.team.id)]
        found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        documents = [
            submission_document(services, with_score(services, one, is_own=True)) for one in found[skip : skip + limit]
        ]
        return SubmissionList(submissions=documents, n=len(found))

    @router.get("/me/ledger", responses={**signed_in, **answers("unknown-benchmark")})
    def ledger(
        request: Request,
        benchmark: Annotated[str, Query(max_length=100)],
        version: Annotated[str | None, Query(max_length=100)] = None,
    ) -> LedgerList:
        """The itemised accounts of the asker's teams for a version of a benchmark."""
        actor = require_actor(services, request, "read")
        of = find_published(services, benchmark, version)
        policy = services.settings.of(of.name).quota
        ledgers = []
        with services.store.read() as connection:
            for team in _teams(actor):
                rows = quota.statement(connection, team.id, of.name, of.version)
                balance = Budget.model_validate(quota.balance(connection, team.id, of.name, of.version, policy))
                listed = [ApiLedgerRow.model_validate(row) for row in rows]
                where = {"benchmark": of.name, "version": of.version}
                ledgers.append(LedgerDocument(team=team, **where, balance=balance, rows=listed))
        return LedgerList(ledgers=ledgers)


def _teams(actor: Actor) -> list[ApiMembership]:
    return [ApiMembership(id=m.team.id, name=m.team.name, role=m.role) for m in actor.memberships]


def _in_browser(services: Services, request: Request) -> Actor:
    actor = require_actor(services, request, "read")
    if actor.via == "token":
        raise ProblemError("session-only")
    return actor


def _add_invitations(router: APIRouter, services: Services) -> None:
    @router.get("/me/invitations", responses=answers("sign-in", "scope", *ALWAYS))
    def invited(request: Request) -> InvitationList:
        """The teams that the asker is invited to."""
        actor = require_actor(services, request, "read")
        with services.store.read() as connection:
            found = invitations.of_user(connection, actor.user)
        return InvitationList(invitations=[InvitationDocument.model_validate(one) for one in found])

    @router.post("/me/invitations/{invitation_id}", status_code=204, responses={**IN_BROWSER, **answers("not-found")})
    def answer(request: Request, invitation_id: Annotated[str, Path(pattern=ID)], given: InvitationAnswer) -> None:
        """Accept or decline an invitation: only the person invited can."""
        actor = _in_browser(services, request)
        act = invitations.accept if given.answer == "accept" else invitations.decline
        try:
            with services.store.write() as connection:
                act(connection, invitation_id, actor.user)
        except NotPermittedError:
            raise ProblemError("not-found") from None


def _add_tokens(router: APIRouter, services: Services) -> None:
    @router.get("/me/tokens", responses=answers("sign-in", "scope", "session-only", *ALWAYS))
    def tokens(request: Request) -> TokenList:
        """The asker's tokens, without their secrets, those that are over too."""
        return TokenList(
            tokens=[
                TokenDocument.model_validate(token)
                for token in services.accounts.tokens_of(_in_browser(services, request).user)
            ]
        )

    @router.post("/me/tokens", status_code=201, responses=IN_BROWSER)
    def issue(request: Request, wanted: TokenRequest) -> TokenIssued:
        """A new token for one of the asker's teams; its secret is in this answer and nowhere else."""
        actor = _in_browser(services, request)
        team = next((m.team for m in actor.memberships if m.team.id == wanted.team_id), None)
        if team is None:
            raise ProblemError(
                "invalid", errors=[ApiFault(field="body.team_id", rule="must be a team of yours", value=wanted.team_id)]
            )
        try:
            token, secret = services.accounts.issue_token(
                actor.user, team, name=wanted.name, scopes=wanted.scopes, days=wanted.days
            )
        except TokenError as error:
            raise ProblemError("invalid", str(error)) from None
        return TokenIssued(token=TokenDocument.model_validate(token), secret=secret)

    @router.delete("/me/tokens/{token_id}", status_code=204, responses={**IN_BROWSER, **answers("not-found")})
    def revoke(request: Request, token_id: Annotated[str, Path(pattern=ID)]) -> None:
        """End a token at once."""
        actor = _in_browser(services, request)
        if not services.accounts.revoke_token(token_id, actor.name):
            raise ProblemError("not-found")
