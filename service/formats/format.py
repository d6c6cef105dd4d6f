"""The description by which the one parser reads any family's output, and constraints write it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Delimiter = Annotated[str, Meta(min_length=1, max_length=128)]


class ReasoningTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text between ``open`` and ``close`` is reasoning. ``other_opens`` and ``other_closes`` are
    further spellings that models use. ``bare``: what an output begins with when its reasoning has
    lost the tag that opens it."""

    open: Delimiter
    close: Delimiter
    bare: str = ""
    other_opens: tuple[Delimiter, ...] = ()
    other_closes: tuple[Delimiter, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.other_opens)

    @property
    def closes(self) -> tuple[str, ...]:
        return (self.close, *self.other_closes)


# --- how calls are written between their tags ----------------------------------------------------


class JsonBody(msgspec.Struct, frozen=True, tag="json", forbid_unknown_fields=True):
    """``{"name": …, "arguments": {…}}``, or an array of such objects.

    ``array``: families that always write the array. ``keyed_by_name``: ``{"get_weather": {…}}``
    instead. ``id_key``: the object names the call's id too. ``other_keys``: what else an object may
    begin with.
    """

    name_key: str = "name"
    arguments_keys: tuple[str, ...] = ("arguments", "parameters")
    id_key: str | None = None
    other_keys: tuple[str, ...] = ()
    array: bool = False
    keyed_by_name: bool = False


class NamedJsonBody(msgspec.Struct, frozen=True, tag="named_json", forbid_unknown_fields=True):
    """A name, ``separator``, and the arguments as a JSON object, then ``end``.

    ``prefix`` stands before the name. ``header``: a regex with the group ``name`` (and ``id``) for
    families whose header holds more than the name; ``written`` is then the header to write, with
    ``{name}`` and ``{index}`` (the call's number) in it.
    """

    separator: Delimiter
    prefix: str = ""
    end: str = ""
    header: str | None = None
    written: str = "{name}"


class ParametersBody(msgspec.Struct, frozen=True, tag="parameters", forbid_unknown_fields=True):
    """Calls spelled with tags, one for each argument, whose values are bare text:
    ``<function=NAME><parameter=KEY>VALUE</parameter></function>``.

    - ``call_open NAME name_end … call_close`` is one call. Without ``name_end`` the name ends where
      the first argument begins; without ``call_open`` the call's own tags hold one call.
    - ``key_open KEY key_end value_open VALUE value_close`` is one argument.
    - ``attributes``: after the key come XML attributes up to ``tag_end``. ``string="true"`` or
      ``"false"``, or ``type="string"`` or another type, tells whether the value is text or JSON.
    - ``name_attributes``: after the name come attributes up to ``tag_end``; they are written like
      this, with ``{index}`` for a number, and mean nothing.
    - ``doubled_names``: a tool outside any namespace may be called by its name twice, as in
      ``get_weather.get_weather``.
    - ``escaped``: quotes and ampersands in names and keys are XML's ``&quot;`` and ``&amp;``.
    - ``object_open … tag_end JSON object_close`` may stand for all arguments.
    - ``cdata``: a value may stand in ``<![CDATA[…]]>``.
    - ``trims_newline``: a line break after the opening and before the closing tag is no part of
      the value.
    - ``untyped_json``: a value whose type the tool's schema does not tell is JSON where it can be.
    """

    key_open: Delimiter
    key_end: Delimiter
    value_close: Delimiter
    call_open: str = ""
    name_end: str = ""
    call_close: str = ""
    value_open: str = ""
    attributes: Literal["", "string", "type"] = ""
    name_attributes: str = ""
    tag_end: Delimiter = ">"
    escaped: bool = False
    doubled_names: bool = False
    object_open: str = ""
    object_close: str = ""
    cdata: bool = False
    trims_newline: bool = False
    untyped_json: bool = False


class ElementsBody(msgspec.Struct, frozen=True, tag="elements", forbid_unknown_fields=True):
    """Calls as nested elements, ``mark`` before each tag, with an element for each argument:
    ``<invoke name="NAME"><KEY>VALUE</KEY></invoke>``. A value may be elements again: an object's
    members, or an array's items, as the tool's schema says.

    ``call_open "NAME"> … call_close`` is one call.
    """

    mark: Delimiter
    call_open: Delimiter
    call_close: Delimiter


class PythonBody(msgspec.Struct, frozen=True, tag="python", forbid_unknown_fields=True):
    """Calls as Python: ``[get_weather(city="Oslo"), ping()]``; without ``brackets``, one a line."""

    brackets: bool = True


class RelaxedBody(msgspec.Struct, frozen=True, tag="relaxed", forbid_unknown_fields=True):
    """``call_open NAME {key:value,…}``: an object with bare keys, whose strings stand between two
    ``quote``. ``other_call_opens`` are further spellings that models use."""

    call_open: str
    quote: Delimiter
    other_call_opens: tuple[Delimiter, ...] = ()


Body = JsonBody | NamedJsonBody | ParametersBody | ElementsBody | PythonBody | RelaxedBody


class ToolCallTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls stand between ``open`` and ``close``, as ``body`` says: one, or several.

    - ``other_opens``: further spellings of ``open`` that models use.
    - ``lead`` is written in front of ``open``; it means nothing, and is among ``ignored``.
    - Without ``close`` they end where the body does.
    - ``json``: calls that begin with a brace, or a bracket and a brace, are JSON as this says,
      whatever ``body`` is.
    - ``bare``: the first character of calls that stand in no tags. Such calls are looked for where
      an answer begins, and only names of the request's own tools make one.
    - ``around``: tags of a section that holds the calls; they mean nothing by themselves.
      ``section`` is the pair that is written around calls.
    - ``several``: one pair of tags holds all calls that are made together, not one of them.
    - ``ids``: how ids are made: random ones, or nine letters and digits.
    """

    open: str
    close: str = ""
    other_opens: tuple[Delimiter, ...] = ()
    lead: str = ""
    body: Body = JsonBody()
    json: JsonBody | None = None
    bare: str = ""
    around: tuple[Delimiter, ...] = ()
    section: tuple[str, str] = ("", "")
    several: bool = False
    ids: Literal["random", "nine"] = "random"

    @property
    def opens(self) -> tuple[str, ...]:
        return tuple(tag for tag in (self.open, *self.other_opens) if tag)


class Channels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages with a header that says what they are (Harmony, Muse, Inkling, Functionary).

    One of ``opens`` begins a header, one of ``message`` ends it; a tag that is both is a header of
    its own. One of ``closes`` ends the message. Regexes are searched in the header with the tags
    around it:

    - ``call``, with the group ``name``: what follows is that call's arguments as JSON. Without it,
      calls stand in messages as the format's ``calls`` say, in those whose header matches
      ``calls_in``.
    - ``reasoning``: what follows is reasoning.
    - ``others``: the message is for neither the client nor its tools and is not shown, unless
      ``call`` names a tool of the request.
    - ``header``: what does not match it is no header but text.

    Every other message is text.

    To write, there are whole headers: ``written`` (a call's, with ``{name}`` in it),
    ``reasoning_header``, ``text_headers`` (the answer's first), what stands ``between`` a message
    and the next header (the tag that closes it, and what follows), and ``next_call`` between a
    call's end and the next call's header (empty: one call is made at a time).
    """

    opens: tuple[Delimiter, ...]
    message: tuple[Delimiter, ...]
    closes: tuple[Delimiter, ...]
    text_headers: tuple[str, ...]
    between: tuple[Delimiter, str]
    written: str = ""
    reasoning_header: str = ""
    next_call: str = ""
    call: str = ""
    calls_in: str = ""
    reasoning: str = ""
    others: str = ""
    header: str = ""

    def is_reasoning(self, header: str) -> bool:
        return bool(self.reasoning) and re.search(self.reasoning, header) is not None


class OutputFormat(msgspec.Struct, frozen=True):
    """None where a family has no such thing. White space around the tags belongs to them.
    ``ignored`` are further tags that mean nothing to a client. ``marks`` are such tags inside text,
    whose white space around them is the text's: what they begin with, and end with if they hold
    more. ``name`` is for logs."""

    reasoning: ReasoningTags | None = None
    tool_call: ToolCallTags | None = None
    channels: Channels | None = None
    ignored: tuple[str, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    name: str = ""

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag, for a tokenizer that declares some of them special."""
        tags: list[str] = [*self.ignored, *(mark for mark, _ in self.marks)]
        if self.reasoning is not None:
            tags += (*self.reasoning.opens, *self.reasoning.closes)
        if self.channels is not None:
            tags += (*self.channels.opens, *self.channels.message, *self.channels.closes)
            tags += (self.channels.written, *self.channels.text_headers)
        call = self.tool_call
        if call is not None:
            tags += (*call.opens, call.close, *call.around, *_body_tags(call.body))
        tags += [part for tag in tags for part in token_like(tag)]
        return tuple(dict.fromkeys(tag for tag in tags if tag))


# How families spell tokens of their own. A delimiter may hold several, one inside the other.
_TOKEN_LIKE = re.compile(r"<[^<>]+>|\[[A-Z_/]+\]|\]<\][^\[\]<>]+\[>\[")
_INNER_TOKEN = re.compile(r"｜[^｜<>]+｜")


def token_like(text: str) -> tuple[str, ...]:
    """The parts of a delimiter that may be tokens of their own, longest first."""
    whole = _TOKEN_LIKE.findall(text)
    inner = [part for outer in (text, *whole) for part in _INNER_TOKEN.findall(outer)]
    return tuple(dict.fromkeys((*whole, *inner)))


def _body_tags(body: Body) -> tuple[str, ...]:
    match body:
        case NamedJsonBody():
            header = re.sub(r"\\(.)", r"\1", body.header or "")
            return (body.separator, *token_like(header), body.prefix, *token_like(body.written))
        case ParametersBody():
            return (
                *(body.call_open, body.name_end, body.call_close),
                *(body.key_open, body.key_end, body.value_open, body.value_close),
            )
        case ElementsBody():
            return (body.mark,)
        case RelaxedBody():
            return (body.quote,)
        case JsonBody() | PythonBody():
            return ()


PLAIN = OutputFormat()
