"""Every step is found by its name and makes what it says it makes."""

from __future__ import annotations

import msgspec
import pytest

from service.errors import QuireError
from service.preparation.sending import packed
from service.preparation.steps import STEPS, perform
from tests.service.preparation.bodies import CASES, Case
from tests.service.preparation.prepared import prepared, work_of


@pytest.mark.parametrize("name", STEPS)
def test_a_step_bears_the_name_it_goes_by(name: str) -> None:
    assert STEPS[name].name == name


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_a_step_makes_what_its_type_says(one: Case) -> None:
    try:
        made = prepared(one.step, one.body, **one.fields)
    except QuireError:
        return
    read = msgspec.msgpack.decode(packed(made).result, type=STEPS[one.step].result)
    assert type(read) is type(made)
    assert read.noted == made.noted


def test_a_form_is_made_of_what_another_step_asked_for() -> None:
    asked = prepared("completion", {"prompt": "Hi", "guided_choice": ["a", "b"]}).asked
    form = perform(work_of("form", asked=asked))
    assert form.constraint is not None  # type: ignore[attr-defined]  # a form's
