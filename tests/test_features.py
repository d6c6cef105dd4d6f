"""docs/feature-matrix.md says what the tests prove, and nothing else."""

from __future__ import annotations

from tests.features import FEATURES, PAGE, WHERE, page, proofs


def test_the_page_is_what_the_marks_say() -> None:
    assert PAGE.read_text() == page(), "make docs"


def test_every_mark_names_a_row_and_a_column_and_every_row_has_a_proof() -> None:
    found = proofs()
    assert {proof.where for proof in found} <= WHERE.keys()
    assert {proof.feature for proof in found} == FEATURES.keys()
    assert all(proof.test.startswith("test_") for proof in found)
