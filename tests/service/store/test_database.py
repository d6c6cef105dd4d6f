"""What the store asks of its database, and what is said of its failures."""

from __future__ import annotations

from sqlalchemy.exc import StatementError

from service.store.database import Database
from service.store.place import store_place


def test_what_is_logged_of_a_failure_holds_nothing_of_what_was_to_be_stored() -> None:
    database = Database(store_place("sqlite:///store.sqlite3"))
    failure = StatementError("no", "INSERT …", {"body": "a prompt"}, TypeError("not a number"))
    assert database.explain(failure) == "TypeError: not a number"
    row = "null value in column\nDETAIL:  Failing row contains (resp_1, a prompt)."
    assert database.explain(OSError(row)) == "OSError: null value in column"
