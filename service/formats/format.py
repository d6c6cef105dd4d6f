"""The description of an output format, used both to parse output and to constrain it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Delimiter = Annotated[str, Meta(min_length=1, max_length=128)]


class ReasoningTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text between ``open`` and ``close`` is reasoning. ``other_opens`` and ``other_closes`` are
    alternative spellings that models use. ``bare``: how an output begins if the opening tag of its
    reasoning is missing."""

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


# --- how calls are written between their tags -----------------------------------------------------


class JsonBody(msgspec.Struct, frozen=True, tag="json", forbid_unknown_fields=True):
    """``{"name": …, "arguments": {…}}``, or an array of such objects.

    ``array``: for families that always write the array. ``keyed_by_name``: ``{"get_weather": {…}}``
    instead. ``id_key``: the key of the call's id in the object. ``other_keys``: further keys with
    which an object may begin.
    """

    name_key: str = "name"
    arguments_keys: tuple[str, ...] = ("arguments", "parameters")
    id_key: str | None = None
    other_keys: tuple[str, ...] = ()
    array: bool = False
    keyed_by_name: bool = False


class NamedJsonBody(msgspec.Struct, frozen=True, tag="named_json", forbid_unknown_fields=True):
    """A name, ``separator``, and the arguments as a JSON object, then ``end``.

    ``prefix`` comes before the name. ``header``: a regex with the group ``name`` (and ``id``) for
    families whose header holds more than the name; ``written`` is then the header to write, with
    ``{name}`` and ``{index}`` (the call's number) in it.
    """

    separator: Delimiter
    prefix: str = ""
    end: str = ""
    header: str | None = None
    written: str = "{name}"


class ParametersBody(msgspec.Struct, frozen=True, tag="parameters", forbid_unknown_fields=True):
    """Calls written with tags, one for each argument, whose values are bare text:
    ``<function=NAME><parameter=KEY>VALUE</parameter></function>``.

    - ``call_open NAME name_end … call_close`` is one call. Without ``name_end`` the name ends where
      the first argument begins; without ``call_open`` the tags around the body hold one call.
    - ``key_open KEY key_end value_open VALUE value_close`` is one argument.
    - ``attributes``: XML attributes up to ``tag_end`` follow the key. ``string="true"`` or
      ``"false"``, or ``type="string"`` or another type, determines whether the value is text or
      JSON.
    - ``name_attributes``: attributes up to ``tag_end`` follow the name; they are written like this,
      with ``{index}`` for a number, and have no meaning.
    - ``doubled_names``: a tool outside any namespace may be called by its name twice, as in
      ``get_weather.get_weather``.
    - ``escaped``: quotes and ampersands in names and keys are written as ``&quot;`` and ``&amp;``.
    - ``object_open … tag_end JSON object_close`` may replace the list of arguments.
    - ``cdata``: a value may be written as ``<![CDATA[…]]>``.
    - ``trims_newline``: a line break after the opening and before the closing tag is not part of
      the value.
    - ``untyped_json``: a value without a type in the tool's schema is JSON if it can be parsed.
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
    """Calls as nested elements with ``mark`` before each tag and one element per argument:
    ``<invoke name="NAME"><KEY>VALUE</KEY></invoke>``. Depending on the tool's schema, a value may
    itself consist of elements: an object's members or an array's items.

    ``call_open "NAME"> … call_close`` is one call.
    """

    mark: Delimiter
    call_open: Delimiter
    call_close: Delimiter


class PythonBody(msgspec.Struct, frozen=True, tag="python", forbid_unknown_fields=True):
    """Calls as Python: ``[get_weather(city="Oslo"), ping()]``; without ``brackets``, one per
    line."""

    brackets: bool = True


class RelaxedBody(msgspec.Struct, frozen=True, tag="relaxed", forbid_unknown_fields=True):
    """``call_open NAME {key:value,…}``: an object with bare keys, whose strings are delimited by
    ``quote``. ``other_call_opens`` are alternative spellings that models use."""

    call_open: str
    quote: Delimiter
    other_call_opens: tuple[Delimiter, ...] = ()


Body = JsonBody | NamedJsonBody | ParametersBody | ElementsBody | PythonBody | RelaxedBody


class ToolCallTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One or more calls, written as ``body`` describes, between ``open`` and ``close``.

    - ``other_opens``: alternative spellings of ``open`` that models use.
    - ``lead`` is written before ``open``; it has no meaning, and is one of ``ignored``.
    - Without ``close`` the calls end where the body does.
    - ``json``: how to parse calls that begin with a brace, or a bracket and a brace, even if
      ``body`` is a different syntax.
    - ``bare``: the first character of calls without tags. They are recognized only at the beginning
      of an answer, and only if they name one of the request's own tools.
    - ``around``: tags of a section that holds the calls; they have no meaning by themselves.
      ``section`` is the pair to write around calls.
    - ``several``: one pair of tags holds all calls made together, rather than a single call.
    - ``ids``: the style of call ids: random, or nine letters and digits.
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
    """Messages with a header that gives their type (Harmony, Muse, Inkling, Functionary).

    One of ``opens`` begins a header, one of ``message`` ends it; a tag that is in both is a
    complete header. One of ``closes`` ends the message. Regexes are searched in the header,
    including the tags around it:

    - ``call``, with the group ``name``: the arguments of a call to ``name`` follow as JSON. Without
      it, calls are inside messages as the format's ``calls`` describe, if the header matches
      ``calls_in``.
    - ``reasoning``: reasoning follows.
    - ``others``: the message is for neither the client nor its tools and is not shown, unless
      ``call`` names a tool of the request.
    - ``header``: text that does not match this is not a header.

    Every other message is text.

    The remaining fields hold whole headers for writing: ``written`` (a call's, with ``{name}`` in
    it), ``reasoning_header``, ``text_headers`` (the answer's first), ``between`` a message and the
    next header (the tag that closes the message, and what follows it), and ``next_call`` between a
    call's end and the next call's header (empty: one call at a time).
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
    """How a model family marks its output; None for what the family does not have. White space
    around tags counts as part of them. ``ignored`` are further tags without meaning to a client.
    ``marks`` are such tags inside text, where the white space around them belongs to the text:
    their beginnings, and their ends if they have content. ``name`` is for logs."""

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


# How families write special tokens. A delimiter may hold several, one inside the other.
_TOKEN_LIKE = re.compile(r"<[^<>]+>|\[[A-Z_/]+\]|\]<\][^\[\]<>]+\[>\[")
_INNER_TOKEN = re.compile(r"｜[^｜<>]+｜")


def token_like(text: str) -> tuple[str, ...]:
    """Return the parts of a delimiter that may be single tokens, longest first."""
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
