"""What clients learn of a model, before it is loaded and after."""

from __future__ import annotations

import time

from service.serving.model_cards import model_card, model_cards
from service.tenants.caller import Caller
from tests.service.preparation.prepared import engine
from tests.service.serving.by_hand import client, loaded, services
from tests.service.wire.chat.test_answer import Desk


def test_while_it_loads_only_its_name_is_known() -> None:
    of = services(Desk())
    asking = client(of)
    card = model_card(asking, "alias")
    assert (card.id, card.root) == ("alias", "pocket")
    assert (card.max_model_len, card.architecture, card.tasks) == (None, None, None)
    assert card.created == of.started <= time.time()
    assert model_card(asking, "alias") == card


def test_a_loaded_model_says_what_it_does() -> None:
    ready = engine(generates=False, embedding_size=8)
    card = model_card(client(services(loaded(ready))), "pocket")
    assert (card.max_model_len, card.architecture) == (4096, "Pocket")
    assert card.tasks == ("embed", "score")


def test_a_key_sees_the_models_that_it_may_use() -> None:
    of = services(Desk(), served_model_name=("pocket", "alias", "third"))

    def seen(models: frozenset[str] | None) -> list[tuple[str, str]]:
        asking = client(of)
        asking.exchange.identify(Caller(models=models))
        return [(card.id, card.root) for card in model_cards(asking)]

    assert seen(None) == [("pocket", "pocket"), ("alias", "pocket"), ("third", "pocket")]
    assert seen(frozenset({"third", "alias", "elsewhere"})) == [
        ("alias", "alias"),
        ("third", "alias"),
    ]
    assert seen(frozenset()) == []
