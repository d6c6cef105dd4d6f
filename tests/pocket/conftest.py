"""What several tests of the pocket room need."""

import pytest

from pocket import MODEL_DIR

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def local():
    """The shipped model, ready to answer cases."""
    from pocket.evaluate import Local

    return Local(MODEL_DIR, batch=16)


@pytest.fixture(scope="session")
def tokenizer(local):
    """The shipped tokenizer as transformers loads it."""
    return local.tokenizer
