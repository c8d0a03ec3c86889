"""Candidates of a run: the filtered list, and the page of a candidate with texts, diff and replay."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.best_result import program_values
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.forms import SubmittedForm, form_errors
from service.dashboard.live import LivePart, Seen
from service.dashboard.objectives import by_importance
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import Text, Word, parse_count, parse_id
from service.dashboard.run_view import RunView, RunViewDep
from service.responses import attachment
from speciate.domain.candidate import CandidateStatus
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.objective import Objective
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.messaging.replays import replayable
from speciate.ports.work import WorkKind
from speciate.schema.base import Page
from speciate.schema.candidates import CandidateDetail, CandidateRecord, RolloutDetail
from speciate.schema.runs import RunRecord
from speciate.storage.candidates.listing import ANY_TARGET, BY_NUMBER, BY_SCALAR, CandidateFilter
from speciate.storage.candidates.queries import WaitingBatch

router = APIRouter(include_in_schema=False)

MAX_CHARACTERS: Final = 60_000
"""Characters of a text shown on a page; the download has all."""

_LIMIT: Final = 60
_COLUMNS: Final = 6


@dataclass(frozen=True)
class CandidateListQuery:
    """Filters and sort key of the list, as in the URL; empty or unknown ones are ignored."""

    status: Word = ""
    island: Word = ""
    role: Word = ""
    policy: Text = ""
    target: Word = ""
    rule: Text = ""
    elite: Word = ""
    sort: Word = ""

    def filter(self, dashboard: DashboardContext) -> CandidateFilter:
        island = self.island
        return CandidateFilter(
            status=CandidateStatus(self.status) if self.status in {"evaluated", "failed"} else None,
            island=int(island) if island.isascii() and island.isdecimal() and len(island) < 9 else None,
            role=PolicyRole(self.role) if self.role in set(PolicyRole) else None,
            policy_id=dashboard.stores.catalog.policy(self.policy).id if self.policy else None,
            target=self.target or None,
            rule=self.rule.strip() or None,
            elite=bool(self.elite),
            sort=self.sort or None,
        )


@router.get("/runs/{run_id}/candidates")
def list_candidates(
    request: Request,
    view: RunViewDep,
    query: Annotated[CandidateListQuery, Depends()],
    show: Annotated[list[str] | None, Query(max_length=600)] = None,
    cursor: Text = "",
) -> Response:
    run, problem = view.run, view.problem
    names = problem.space.names
    if query.sort == BY_NUMBER and query.sort not in names:
        query = replace(query, sort="")
    candidates, errors = Page[CandidateRecord](items=()), None
    try:
        candidates = view.dashboard.stores.queries.candidates(
            run.id, query.filter(view.dashboard), limit=_LIMIT, cursor=cursor or None
        )
    except InvalidInputError as error:
        errors = form_errors(error)
    filters = asdict(query)
    columns = tuple(name for name in names if name in set(show or ()))
    path = f"/runs/{run.id}/candidates"
    context: dict[str, Any] = {
        "run": run,
        "problem": problem,
        "candidates": candidates.items,
        "objectives": shown_objectives(problem, columns, query.sort),
        "weighted": problem.weights is not None and BY_SCALAR not in names,
        "columns": columns,
        "filters": filters,
        "policies": _policies(run, query.policy),
        "errors": errors,
        "any": "" if ANY_TARGET in {target.name for target in problem.targets} else ANY_TARGET,
        "next": candidates.next_cursor and address(path, **filters, show=columns, cursor=candidates.next_cursor),
    }
    return page(request, "candidates.html", 422 if errors else 200, **context)


@router.get("/candidates/{candidate_id}")
def find_candidate(candidate_id: str, dashboard: DashboardDep) -> Response:
    candidate = dashboard.stores.queries.candidate(parse_id(candidate_id, "candidate"))
    return RedirectResponse(f"/runs/{candidate.run_id}/candidates/{candidate.number}", 303)


@router.get("/runs/{run_id}/candidates/{number}")
def show_candidate(request: Request, view: RunViewDep, number: str) -> Response:
    """Show a candidate: rewards, changes to its parent, prompt and completion; before its result, the wait."""
    candidate, waiting = _look_up(view, number)
    if candidate is None:
        panel = _evaluation(view, int(number), waiting)
        return page(request, "waiting.html", problem=view.problem, most=MAX_CHARACTERS, **panel)
    parent = view.candidate(candidate.parents[0]) if candidate.parents else None
    return page(
        request,
        "candidate.html",
        problem=view.problem,
        parent=parent,
        program=program_values(view.problem, candidate, parent),
        rollout=view.rollout_of(candidate),
        wrote=view.dashboard.stores.catalog.policy(candidate.policy_id).name
        if view.run.learning is not None and candidate.policy_id
        else None,
        most=MAX_CHARACTERS,
        **(_evaluation(view, candidate.number) | _replay(view.dashboard, candidate)),
    )


@router.post("/runs/{run_id}/candidates/{number}/replay", dependencies=[SubmittedForm])
def request_replay(view: RunViewDep, number: str) -> Response:
    candidate = _candidate(view, number)
    view.dashboard.replays.request(candidate)
    return RedirectResponse(f"/runs/{view.run.id}/candidates/{candidate.number}#replay", 303)


@router.get("/runs/{run_id}/candidates/{number}/live")
async def watch_candidate(view: RunViewDep, number: str, seen: Seen = "", awaited: bool = False) -> StreamingResponse:
    """Stream the progress of an evaluation, a confirmation or a replay.

    With ``awaited`` the page shows a candidate without a result, and is loaded again when there is one.
    """
    await to_thread.run_sync(_look_up, view, number)  # so that an unknown candidate is a 404
    dashboard, run_id = view.dashboard, view.run.id

    def render() -> LivePart:
        view = RunView(dashboard, dashboard.stores.runs.get(run_id))
        try:
            candidate, waiting = _look_up(view, number)
        except NotFoundError:  # the run was cancelled
            panel = _evaluation(view, int(number))
            return LivePart(fragment("evaluation.html", **panel, gone=True), final=True)
        panel = _evaluation(view, int(number), waiting)
        if candidate is None:
            return LivePart(fragment("evaluation.html", **panel))
        if awaited:
            return LivePart(fragment("evaluation.html", **panel, over=True), final=True)
        panel |= _replay(dashboard, candidate)
        html = fragment("evaluation.html", **panel) + fragment("replay.html", **panel)
        return LivePart(html, final=not (panel["pending"] or panel["active"]))

    return dashboard.watch(f"candidate {run_id} {number} {awaited}", render, seen, run_id=run_id)


@router.get("/runs/{run_id}/candidates/{number}/program")
def show_program(request: Request, view: RunViewDep, number: str) -> Response:
    """Send the program of a candidate as the part of a run's page that shows it."""
    return page(request, "program.html", program=program_values(view.problem, _candidate(view, number)))


@router.get("/runs/{run_id}/candidates/{number}/{text}.txt")
def get_text(view: RunViewDep, number: str, text: str) -> Response:
    """Send one of a candidate's texts as a download, so that no browser renders it."""
    candidate = _candidate(view, number)
    texts = _texts(candidate, view.rollout_of(candidate))
    if text not in texts:
        raise NotFoundError(f"candidate {number} has no text {text[:60]!r}.", remedy=f"It has {', '.join(texts)}.")
    name = f"candidate-{candidate.number}-{text}.txt"
    if text == "program":
        files = list(view.problem.files_in(candidate.program))
        name = f"candidate-{candidate.number}{Path(files[0]).suffix if len(files) == 1 else '.txt'}"
    content = texts[text].encode("utf-8", "replace")
    return Response(content, headers=attachment(name), media_type="text/plain; charset=utf-8")


def shown_objectives(problem: Problem, names: tuple[str, ...] = (), sort: str = "") -> list[Objective]:
    """Return the objectives that a table shows: the named ones, else the first few by importance.

    The sort key comes first, then the order of ``by_importance``. The sort key is always included.
    """
    if names:
        return [objective for objective in problem.objectives if objective.name in {*names, sort}]
    return sorted(by_importance(problem), key=lambda objective: objective.name != sort)[:_COLUMNS]


def _policies(run: RunRecord, selected: str) -> list[str]:
    versions = [(run.policy, run.policy_version), (run.mutator, run.mutator_version)]
    versions += [(member.policy, member.policy_version) for member in run.ensembles]
    names = [f"{slug}@{version}" for slug, version in versions if slug]
    return list(dict.fromkeys(filter(None, [*names, selected])))


def _evaluation(view: RunView, number: int, waiting: WaitingBatch | None = None) -> dict[str, Any]:
    kind = WorkKind.EVALUATE if waiting else WorkKind.CONFIRM
    in_progress = (e for e in view.evaluations if e.kind == kind.value)
    active = next((e for e in in_progress if e.candidates[0] <= number <= e.candidates[1]), None)
    return {
        "run": view.run,
        "base": f"/runs/{view.run.id}",
        "number": number,
        "waiting": waiting,
        "proposal": waiting and waiting.proposals[number - waiting.first],
        "active": active,
        "batch": waiting.numbers if waiting else (number, number),
    }


def _look_up(view: RunView, number: str) -> tuple[CandidateDetail, None] | tuple[None, WaitingBatch]:
    waiting = view.dashboard.stores.queries.waiting_batch(view.run.id, _number(view, number))
    try:
        return _candidate(view, number), None
    except NotFoundError:
        if waiting is None:
            raise
        return None, waiting


def _replay(dashboard: DashboardContext, candidate: CandidateDetail) -> dict[str, Any]:
    replay = dashboard.replays.latest(candidate.id) if replayable(candidate) else None
    return {
        "candidate": candidate,
        "replay": replay,
        "replayable": replayable(candidate),
        "pending": replay is not None and replay.done_at is None,
    }


def _candidate(view: RunView, number: str) -> CandidateDetail:
    return view.candidate(_number(view, number))


def _number(view: RunView, text: str) -> int:
    if (number := parse_count(text)) is None:
        raise NotFoundError(f"there is no candidate {text[:60]!r} in run {view.run.id}.")
    return number


def _texts(candidate: CandidateDetail, rollout: RolloutDetail | None) -> dict[str, str]:
    texts = {"program": candidate.program}
    if rollout is not None:
        texts |= {"system": rollout.system, "prompt": rollout.user, "completion": rollout.completion}
    if candidate.failure_detail:
        texts["failure"] = candidate.failure_detail
    return texts | {f"note-{name}": text for name, text in candidate.artifacts.items() if name.isidentifier()}
