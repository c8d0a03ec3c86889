"""SQL of candidate filters and orders; the integration tests run it."""

from __future__ import annotations

import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.objective import Direction, Objective
from speciate.domain.ranking import Ranking
from speciate.domain.reward import RewardSpace
from speciate.domain.target import Target
from speciate.storage import cursors
from speciate.storage.candidates.listing import CandidateFilter, listing
from speciate.storage.runs.context import ScoringSchema

# Names that equal special filter values, or that SQL and Python parse as numbers.
OBJECTIVES = (Objective(name="x"), Objective(name="nan", direction=Direction.MINIMIZE), Objective(name="scalar"))
ANY, BOTH = Target(name="any", rule="x > 0"), Target(name="both", rule="x > 1")
MEASURES = ScoringSchema(Ranking(RewardSpace(OBJECTIVES), (ANY, BOTH), (1.0, 0.0, 0.0)))
PLAIN = ScoringSchema(Ranking(RewardSpace(OBJECTIVES[:1]), (BOTH,), None))


def test_only_known_words_of_a_rule_enter_the_statement() -> None:
    rule = "not (x >= 1e3 or nan != -.5)and scalar==0"
    assert listing(CandidateFilter(rule=rule), MEASURES, None).where == (
        " AND (NOT ( rewards[1] >= float8 '1000.0' OR rewards[2] <> float8 '-0.5' ) AND rewards[3] = float8 '0.0')"
    )


def test_declared_names_take_precedence_over_special_values() -> None:
    assert listing(CandidateFilter(sort="scalar"), MEASURES, None).best == "coalesce(rewards[3], '-infinity')"
    assert listing(CandidateFilter(sort="nan"), MEASURES, None).best == "coalesce(-rewards[2], '-infinity')"
    assert listing(CandidateFilter(target="any"), MEASURES, None).binds == {"met": 1}
    assert listing(CandidateFilter(target="any"), PLAIN, None).binds == {"met": 1}
    assert listing(CandidateFilter(target="both"), MEASURES, None).binds == {"met": 2}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (CandidateFilter(sort="scalar"), "sort: is 'scalar': expected one of number, x"),
        (CandidateFilter(sort="rewards[1]"), "expected one of number, x"),
        (CandidateFilter(target="x"), "target: is 'x': expected one of any, both"),
        (CandidateFilter(rule="x >= 1; DROP"), "unexpected ';' at column 7"),
        (CandidateFilter(rule=""), "expected the name of an objective"),
        (CandidateFilter(rule="program > 1"), "unknown objective 'program'"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(chosen: CandidateFilter, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        listing(chosen, PLAIN, None)
    assert message in str(refused.value)


def test_a_cursor_works_in_its_own_list_only() -> None:
    by_number, by_x = cursors.encode(7), cursors.encode("x", 2.5, 7)
    assert listing(CandidateFilter(), MEASURES, by_number).binds == {"before": 7}
    assert listing(CandidateFilter(sort="x"), MEASURES, by_x).binds == {"least": 2.5, "before": -7}
    for chosen, cursor in (
        (CandidateFilter(), by_x),
        (CandidateFilter(sort="x"), by_number),
        (CandidateFilter(sort="nan"), by_x),
    ):
        with pytest.raises(InvalidInputError, match="cursor"):
            listing(chosen, MEASURES, cursor)
