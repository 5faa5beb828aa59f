"""Causes: what many failures have in common, without the values in them."""

from __future__ import annotations

from etl.files import causes
from etl.model import Place, Stage

PLACE = Place(pipeline="books", stage=Stage.TRANSFORM)


def test_values_are_taken_out_and_fields_stay() -> None:
    facts = {
        "summary": "2 of 12 rows held back from 'a.csv'",
        "where": [
            {"line": 6, "field": "price", "cause": "'on request' is not a number"},
            {"line": 9, "field": "price", "cause": "'-' is not a number"},
        ],
    }
    assert causes.of(facts) == {"price: … is not a number"}


def test_a_reason_without_places_is_its_summary_without_values() -> None:
    names = [{"summary": f"the name 'x{number}.csv' is not accepted by books"} for number in range(3)]
    assert {cause for one in names for cause in causes.of(one)} == {"the name … is not accepted by books"}
    assert causes.plain('Key (sku)=(A-1, 7) already exists in "t" 1,200 times') == (
        "Key (sku)=… already exists in … … times"
    )
    assert causes.plain("cannot read utf-8 as cp1252") == "cannot read utf-8 as cp1252"


def test_the_word_of_a_cause_is_the_same_for_ever_and_its_own_at_each_place() -> None:
    word = causes.word(PLACE, "price: … is not a number")
    assert word == "f1ae9fd9"
    assert word == causes.word(PLACE, "price: … is not a number")
    assert word != causes.word(Place(pipeline="books", stage=Stage.LOAD), "price: … is not a number")
