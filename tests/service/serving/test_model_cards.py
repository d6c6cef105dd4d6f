"""What clients learn of a model, before it is loaded and after."""

from __future__ import annotations

import time

from service.serving.model_cards import model_card
from tests.service.preparation.prepared import engine
from tests.service.serving.by_hand import loaded, services
from tests.service.wire.chat.test_answer import Desk


def test_while_it_loads_only_its_name_is_known() -> None:
    of = services(Desk())
    card = model_card(of, "alias")
    assert (card.id, card.root) == ("alias", "pocket")
    assert (card.max_model_len, card.architecture, card.tasks) == (None, None, None)
    assert card.created == of.started <= time.time()
    assert model_card(of, "alias") == card


def test_a_loaded_model_says_what_it_does() -> None:
    ready = engine(generates=False, embedding_size=8)
    card = model_card(services(loaded(ready)), "pocket")
    assert (card.max_model_len, card.architecture) == (4096, "Pocket")
    assert card.tasks == ("embed", "score")
