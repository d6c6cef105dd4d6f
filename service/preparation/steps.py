"""Every step by its name: pure functions from each API's body to what its route needs, the same on
the event loop and in a preparation process."""

from __future__ import annotations

from typing import Any, Final

from service.preparation import forms
from service.preparation.chat import CHAT, GRPC_CHAT
from service.preparation.completions import COMPLETION, GRPC_COMPLETION
from service.preparation.embeddings import EMBEDDINGS, GRPC_EMBEDDINGS
from service.preparation.jobs import Form, FormJob, Prepared
from service.preparation.messages import COUNT_TOKENS, MESSAGES
from service.preparation.responses import INPUT_TOKENS, ITEMS, MESSAGE, RESPONSES, WARM_UP
from service.preparation.scores import RERANK, RERANK_V2, SCORE
from service.preparation.tokenize import DETOKENIZE, TOKENIZE
from service.preparation.work import Step, Work


def _finish_form(_: None, work: Work) -> Form:
    job = work.job
    assert isinstance(job, FormJob)
    return forms.form_of(job, work.checkpoint, work.noted)


FORM = Step("form", None, _finish_form, Form, FormJob, uses_tokenizer=False)

STEPS: Final[dict[str, Step[Any]]] = {
    step.name: step
    for step in (
        *(CHAT, GRPC_CHAT, COMPLETION, GRPC_COMPLETION, MESSAGES, COUNT_TOKENS),
        *(RESPONSES, MESSAGE, WARM_UP, INPUT_TOKENS, ITEMS),
        *(TOKENIZE, DETOKENIZE, EMBEDDINGS, GRPC_EMBEDDINGS, RERANK, RERANK_V2, SCORE, FORM),
    )
}


def perform(work: Work) -> Prepared:
    """Run the job's step. Raises QuireError."""
    made: Prepared = STEPS[work.job.step].perform(work)
    return made
