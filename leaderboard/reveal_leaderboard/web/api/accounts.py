"""Routes ``/me``: the caller's account, submissions, budgets, invitations and tokens."""

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
    """Return the routes below ``/me``."""
    router = APIRouter(dependencies=SIGN_IN)
    _add_account(router, services)
    _add_invitations(router, services)
    _add_tokens(router, services)
    return router


def _add_account(router: APIRouter, services: Services) -> None:
    signed_in = answers("sign-in", "scope", "invalid", *ALWAYS)

    @router.get("/me", responses=answers("sign-in", "scope", *ALWAYS))
    def me(request: Request) -> Account:
        """Your account and your teams."""
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
        """The submissions of your teams, newest first."""
        actor = require_actor(services, request, "read")
        rows = [row for membership in actor.memberships for row in services.store.of_team(membership.team.id)]
        rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        documents = [
            submission_document(services, with_score(services, row, is_own=True)) for row in rows[skip : skip + limit]
        ]
        return SubmissionList(submissions=documents, n=len(rows))

    @router.get("/me/ledger", responses={**signed_in, **answers("unknown-benchmark")})
    def ledger(
        request: Request,
        benchmark: Annotated[str, Query(max_length=100)],
        version: Annotated[str | None, Query(max_length=100)] = None,
    ) -> LedgerList:
        """The itemised budgets of your teams for a version of a benchmark."""
        actor = require_actor(services, request, "read")
        published = find_published(services, benchmark, version)
        name, version = published.name, published.version
        ledgers = []
        with services.store.read() as connection:
            for team in _teams(actor):
                rows = quota.statement(connection, team.id, name, version)
                left = quota.balance(connection, team.id, name, version, services.settings)
                balance = Budget.model_validate(left)
                listed = [ApiLedgerRow.model_validate(row) for row in rows]
                document = LedgerDocument(team=team, benchmark=name, version=version, balance=balance, rows=listed)
                ledgers.append(document)
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
        """Your open invitations to teams."""
        actor = require_actor(services, request, "read")
        with services.store.read() as connection:
            rows = invitations.of_user(connection, actor.user)
        return InvitationList(invitations=[InvitationDocument.model_validate(row) for row in rows])

    @router.post("/me/invitations/{invitation_id}", status_code=204, responses={**IN_BROWSER, **answers("not-found")})
    def answer(request: Request, invitation_id: Annotated[str, Path(pattern=ID)], reply: InvitationAnswer) -> None:
        """Accept or decline an invitation to a team."""
        actor = _in_browser(services, request)
        act = invitations.accept if reply.answer == "accept" else invitations.decline
        try:
            with services.store.write() as connection:
                act(connection, invitation_id, actor.user)
        except NotPermittedError:
            raise ProblemError("not-found") from None


def _add_tokens(router: APIRouter, services: Services) -> None:
    @router.get("/me/tokens", responses=answers("sign-in", "scope", "session-only", *ALWAYS))
    def tokens(request: Request) -> TokenList:
        """Your tokens without their secrets, including expired and revoked ones."""
        return TokenList(
            tokens=[
                TokenDocument.model_validate(token)
                for token in services.accounts.tokens_of(_in_browser(services, request).user)
            ]
        )

    @router.post("/me/tokens", status_code=201, responses=IN_BROWSER)
    def issue(request: Request, token_request: TokenRequest) -> TokenIssued:
        """Create a token for one of your teams; only this answer contains the token's secret."""
        actor = _in_browser(services, request)
        team = next((m.team for m in actor.memberships if m.team.id == token_request.team_id), None)
        if team is None:
            raise ProblemError(
                "invalid",
                errors=[ApiFault(field="body.team_id", rule="must be one of your teams", value=token_request.team_id)],
            )
        try:
            token, secret = services.accounts.issue_token(
                actor.user, team, name=token_request.name, scopes=token_request.scopes, days=token_request.days
            )
        except TokenError as error:
            raise ProblemError("invalid", str(error)) from None
        return TokenIssued(token=TokenDocument.model_validate(token), secret=secret)

    @router.delete("/me/tokens/{token_id}", status_code=204, responses={**IN_BROWSER, **answers("not-found")})
    def revoke(request: Request, token_id: Annotated[str, Path(pattern=ID)]) -> None:
        """Revoke a token immediately."""
        actor = _in_browser(services, request)
        if not services.accounts.revoke_token(token_id, actor.name):
            raise ProblemError("not-found")
