"""Grammars for tool calls, built from the same format description that the parser uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from service.constraint.arguments import (
    Argument,
    ArgumentSchemas,
    arguments_schema,
    is_binding,
    listed_arguments,
)
from service.constraint.bare_text import (
    ANY_TEXT,
    ANYTHING,
    BareTexts,
    SchemaTexts,
    TextTerminals,
    text_excluding,
)
from service.constraint.lark import (
    SPACE,
    Rules,
    Tag,
    TokenIds,
    TooLargeError,
    either,
    literal,
    quoted,
    spelled,
    tag,
)
from service.constraint.request import ToolShape
from service.constraint.schema_grammar import nested, schema_grammar
from service.errors import InvalidRequestError
from service.formats import (
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
    ToolCallTags,
)
from service.formats.format import Body
from service.output.calls.keys import ends_of_key, written_name
from service.output.calls.parameters import CDATA, reads_text
from service.output.calls.reader import inner_opening
from service.output.calls.tool_schemas import types_of_parameters

_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/"
_NUMBER = r"/-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/"
_STRING = frozenset({"string"})
# The attributes that mark an argument as text, and as JSON.
_ATTRIBUTES = {
    "string": ('" string=\\"true\\""', '" string=\\"false\\""'),
    "type": (
        '" type=\\"string\\""',
        '" type=\\"" /number|boolean|null|object|array/ "\\""',
    ),
}


def opening_of_calls(tags: ToolCallTags) -> str:
    """Return the text that comes first where calls begin; empty if the format has no tags for
    calls."""
    return tags.section[0] or tags.lead + tags.open


def other_openings_of_calls(tags: ToolCallTags) -> tuple[str, ...]:
    """Return further texts that the parser takes for the beginning of calls."""
    others = dict.fromkeys((*tags.opens, inner_opening(tags)))
    return tuple(text for text in others if text and text != opening_of_calls(tags))


def terms_of_tools(
    tools: Sequence[ToolShape], written: Callable[[ToolShape], str], rules: Rules
) -> list[str]:
    """Return what is ``written`` for each tool, to be added to the rules together. Raises
    InvalidRequestError, naming the first tool that they have no room for."""
    terms: list[str] = []
    size = 0
    for tool in tools:
        try:
            terms.append(written(tool))
            size += len(terms[-1])
            rules.check_room(size)
        except TooLargeError as error:
            raise InvalidRequestError(
                "The tools' schemas are too large in total to constrain calls.", param=tool.param
            ) from error
    return terms


class CallTerms:
    """Grammar terms for calls of ``tools``. ``exact``: arguments follow every tool's schema as far
    as a grammar can enforce it, not only those of strict tools.

    Raises InvalidRequestError if a strict tool's schema cannot be enforced.
    """

    def __init__(
        self,
        rules: Rules,
        tags: ToolCallTags,
        tools: tuple[ToolShape, ...],
        token_ids: TokenIds,
        *,
        exact: bool,
    ) -> None:
        self._rules = rules
        self._tags = tags
        self._token_ids = token_ids
        self._exact = exact
        # Attributes say whether a value is text, so that a string among other values may be text.
        self._marks_text = isinstance(tags.body, ParametersBody) and bool(tags.body.attributes)
        self._space = rules.add(SPACE, terminal=True)
        self._one = rules.add(either(terms_of_tools(tools, self._call, rules)))

    def term(self, *, many: bool, opened: bool = False) -> str:
        """Return a term for one call, or with ``many`` any number, including all tags around them.
        ``opened``: ``opening_of_calls`` has been written already."""
        tags, space = self._tags, self._space
        body = self._group(many=many and tags.several)
        inside = f"{space} {body}"
        if tags.close:
            inside += f" {space} {self._spelled(tags.close)}"
        whole = self._after(tags.lead + tags.open, inside)
        if not tags.section[0]:
            first = inside if opened else whole
            repeats = many and not tags.several
            return self._rules.add(f"{first} ({space} {whole})*" if repeats else first)
        repeated = f"{whole} ({space} {whole})*" if many and not tags.several else whole
        closing = f" {space} {self._spelled(tags.section[1])}" if tags.section[1] else ""
        term = f"{space} {repeated}{closing}"
        return self._rules.add(term if opened else self._after(tags.section[0], term))

    def bare(self, *, many: bool) -> str:
        """Return a term for one call, or with ``many`` any number, without tags around them."""
        body = self._tags.body
        if many and isinstance(body, JsonBody) and not body.array:
            between = self._rules.add(r"/[ \t\r\n]{0,8}(;[ \t\r\n]{0,8})?/", terminal=True)
            return f"{self._one} ({between} {self._one})*"
        return self._group(many=many)

    def _group(self, *, many: bool) -> str:
        """Return a term for the calls between one pair of tags."""
        space, one = self._space, self._one
        body = self._tags.body
        comma = f'{space} "," {space}'
        match body:
            case JsonBody(array=True) | PythonBody(brackets=True):
                more = f" ({comma} {one})*" if many else ""
                return f'"[" {space} {one}{more} {space} "]"'
            case _:
                return f"{one} ({space} {one})*" if many else one

    def _call(self, tool: ToolShape) -> str:
        match self._tags.body:
            case JsonBody() as body:
                return self._json(body, tool)
            case NamedJsonBody() as body:
                return self._named_json(body, tool)
            case ParametersBody() as body:
                return self._parameters(body, tool)
            case ElementsBody() as body:
                return self._elements(body, tool)
            case PythonBody():
                return self._python(tool)
            case RelaxedBody() as body:
                return self._relaxed(body, tool)

    # --- JSON ------------------------------------------------------------------------------------

    def _json(self, body: JsonBody, tool: ToolShape) -> str:
        key = tool.name if body.keyed_by_name else body.arguments_keys[0]
        arguments = nested(self._arguments(tool), f"/properties/{_pointer(key)}")
        properties: dict[str, Any] = {key: arguments}
        if not body.keyed_by_name:
            properties = {body.name_key: {"const": tool.name}, key: arguments}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return schema_grammar(schema, lenient=not is_binding(tool))

    def _named_json(self, body: NamedJsonBody, tool: ToolShape) -> str:
        before, _, after = body.written.format(name=tool.name, index="\0").partition("\0")
        header = self._spelled(body.prefix + before)
        if after or "{index}" in body.written:
            header += f" /[0-9]{{1,3}}/ {self._spelled(after)}"
        arguments = schema_grammar(self._arguments(tool), lenient=not is_binding(tool))
        return f"{header} {self._spelled(body.separator)} {arguments} {self._spelled(body.end)}"

    # --- one argument at a time -------------------------------------------------------------------

    def _parameters(self, body: ParametersBody, tool: ToolShape) -> str:
        space = self._space
        head = self._spelled(body.call_open + written_name(tool.name, body) + body.name_end)
        if body.name_attributes:
            before, _, after = body.name_attributes.partition("{index}")
            head += f" {self._spelled(before)} /[0-9]{{1,3}}/ {self._spelled(after + body.tag_end)}"

        def written(key: str, value: str, is_text: bool) -> str:
            opening = self._spelled(f"{body.key_open}{written_name(key, body)}{body.key_end}")
            if body.attributes:
                of_text, of_json = _ATTRIBUTES[body.attributes]
                opening += f" {of_text if is_text else of_json} {self._spelled(body.tag_end)}"
            between = f"{space} {self._spelled(body.value_open)}" if body.value_open else ""
            return f"{opening} {between} {value} {space}"

        edge = "\n" if body.trims_newline else ""
        close = tag(edge + body.value_close, self._token_ids)
        ends = _ends_of_text(body)
        first = CDATA if body.cdata else ""
        terminals = TextTerminals(ends, self._rules.check_room, never_first=first)

        def text_value(texts: BareTexts, never: Sequence[str] = ()) -> str:
            shape = terminals.terminal(texts, never=never)
            shape = shape or f"{ANYTHING} & {text_excluding(ends)}"
            return f"{self._spelled(edge)} {self._rules.shaped_to(shape, close)}"

        def json_value(part: Any, grammar: str) -> str:
            return f"{self._spelled(edge)} {grammar} {self._spelled(edge + body.value_close)}"

        def any_argument() -> str:
            opening = self._spelled(body.key_open)
            rest = self._spelled(body.key_end)
            if body.attributes:
                rest += f" {either(_ATTRIBUTES[body.attributes])} {self._spelled(body.tag_end)}"
            between = f"{space} {self._spelled(body.value_open)}" if body.value_open else ""
            return f"({opening} {_ANY_KEY} {rest} {between} {text_value(ANY_TEXT)} {space})*"

        arguments = self._each(tool, written, text_value, json_value, any_argument, joined=False)
        return f"{head} {space} {arguments} {self._spelled(body.call_close)}"

    def _elements(self, body: ElementsBody, tool: ToolShape) -> str:
        """Values other than text are written as JSON, because a schema cannot be enforced on nested
        elements."""
        space, mark = self._space, self._spelled(body.mark)
        terminals = TextTerminals(quoted(body.mark), self._rules.check_room)

        def written(key: str, value: str, is_text: bool) -> str:
            return f"{mark} {self._spelled(f'<{key}>')} {value} {self._spelled(f'</{key}>')}"

        def text_value(texts: BareTexts, never: Sequence[str] = ()) -> str:
            shape = terminals.terminal(texts, never=never)
            end = tag(body.mark, self._token_ids)
            return self._rules.text_to(end) if shape is None else self._rules.shaped_to(shape, end)

        def json_value(part: Any, grammar: str) -> str:
            return f"{grammar} {mark}"

        def any_argument() -> str:
            element = self._rules.name()
            text = self._rules.text_to(tag(body.mark, self._token_ids))
            key = _ANY_KEY.strip("/")
            inside = f"{text} ({element} {text})*"
            self._rules.define(element, f"/<{key}>/ {inside} /<\\/{key}>/")
            return f"({mark} {element} {space})*"

        arguments = self._each(tool, written, text_value, json_value, any_argument, joined=False)
        head = self._spelled(f'{body.mark}{body.call_open}"{tool.name}">')
        return f"{head} {space} {arguments} {self._spelled(body.mark + body.call_close)}"

    def _python(self, tool: ToolShape) -> str:
        anything = self._any_value("True", "False", "None", quote=None)

        def written(key: str, value: str, is_text: bool) -> str:
            return f"{literal(key + '=')} {value}"

        def json_value(part: Any, grammar: str) -> str:
            is_boolean = isinstance(part, dict) and part.get("type") == "boolean"
            return '("True" | "False")' if is_boolean else grammar

        def any_argument() -> str:
            pair = self._rules.add(f'{_ANY_KEY} "=" {anything}')
            return f'({pair} (", " {pair})*)?'

        arguments = self._each(tool, written, None, json_value, any_argument, joined=True)
        return f'{literal(f"{tool.name}(")} {arguments} ")"'

    def _any_value(self, *constants: str, quote: Tag | None) -> str:
        """Return a term for any value as these formats write it. ``quote``: delimits strings; None:
        Python's own quotes."""
        value = self._rules.name()
        number = self._rules.add(_NUMBER, terminal=True)
        if quote is None:
            string = self._rules.add(
                r'/"([^"\\\n]|\\.)*"/' + " | " + r"/'([^'\\\n]|\\.)*'/", terminal=True
            )
            pair = f"{string} /: ?/ {value}"
        else:
            string = self._rules.add(f"{quote.term} {self._rules.text_to(quote)}")
            pair = f'{_ANY_KEY} ":" {value}'
        comma = "/, ?/"
        words = " | ".join(map(literal, constants))
        items = f'"[" ({value} ({comma} {value})*)? "]"'
        members = f'"{{" ({pair} ({comma} {pair})*)? "}}"'
        return self._rules.define(value, f"{string} | {number} | {words} | {items} | {members}")

    def _relaxed(self, body: RelaxedBody, tool: ToolShape) -> str:
        quote = tag(body.quote, self._token_ids)
        terminals = TextTerminals(quoted(body.quote), self._rules.check_room)
        anything = self._any_value("true", "false", "null", quote=quote)

        def written(key: str, value: str, is_text: bool) -> str:
            return f"{literal(key + ':')} {value}"

        def text_value(texts: BareTexts, never: Sequence[str] = ()) -> str:
            shape = terminals.terminal(texts, never=never)
            if shape is None:
                return f"{quote.term} {self._rules.text_to(quote)}"
            return f"{quote.term} {self._rules.shaped_to(shape, quote)}"

        def any_argument() -> str:
            pair = self._rules.add(f'{_ANY_KEY} ":" {anything}')
            return f'({pair} ("," {pair})*)?'

        arguments = self._each(
            tool, written, text_value, _as_it_is, any_argument, joined=True, comma=","
        )
        return f'{literal(f"{body.call_open}{tool.name}{{")} {arguments} "}}"'

    def _each(
        self,
        tool: ToolShape,
        written: Callable[[str, str, bool], str],
        text_value: Callable[[BareTexts, Sequence[str]], str] | None,
        json_value: Callable[[Any, str], str],
        any_argument: Callable[[], str],
        *,
        joined: bool,
        comma: str = ", ",
    ) -> str:
        """Return a term for the arguments in the order of the schema's properties; optional ones
        may be omitted. ``joined``: separated by commas."""
        schema = self._arguments(tool)
        found = listed_arguments(tool, schema, self._tags.body)
        if not found.properties:
            return "" if found.named else any_argument()
        terms: list[tuple[str, bool]] = []
        types = types_of_parameters(schema, found.properties)
        texts = SchemaTexts(schema)
        schemas = ArgumentSchemas(schema, self._rules.check_room, lenient=not is_binding(tool))
        for key, part in found.properties.items():
            argument = Argument(tool, key, part, types[key], texts, schemas)
            term = self._value(argument, written, text_value, json_value)
            terms.append((self._rules.add(term), key in found.required))
        if not joined:
            return " ".join(term if needed else f"{term}?" for term, needed in terms)
        return _joined(self._rules, terms, literal(comma))

    def _value(
        self,
        argument: Argument,
        written: Callable[[str, str, bool], str],
        text_value: Callable[[BareTexts, Sequence[str]], str] | None,
        json_value: Callable[[Any, str], str],
    ) -> str:
        """Return a term for an argument: as bare text if the parser reads its types as that."""
        if text_value is not None and _reads_text(self._tags.body, argument.types):
            return written(argument.key, argument.as_text(text_value), True)
        value = json_value(argument.part, argument.schemas.grammar(argument.part))
        term = written(argument.key, value, False)
        text = argument.text_among_others(text_value) if text_value and self._marks_text else None
        if text is None:
            return term
        return either([written(argument.key, text, True), term])

    def _arguments(self, tool: ToolShape) -> dict[str, Any]:
        return arguments_schema(tool, exact=self._exact)

    def _spelled(self, text: str) -> str:
        body = self._tags.body
        if isinstance(body, ElementsBody) and text.startswith(body.mark):
            # Separately: the lexer does not backtrack to a mark once it has begun to read a tag.
            rest = text.removeprefix(body.mark)
            return f"{spelled(body.mark, self._token_ids)} {spelled(rest, self._token_ids)}"
        return spelled(text, self._token_ids)

    def _after(self, opening: str, term: str) -> str:
        return f"{self._spelled(opening)} {term}" if opening else term


def _as_it_is(part: Any, grammar: str) -> str:
    return grammar


def _joined(rules: Rules, terms: list[tuple[str, bool]], comma: str) -> str:
    """Return a term for all required and any optional terms, separated by commas."""
    behind = ""  # what may follow a term
    alone = '""'  # what may come if nothing came before
    for term, needed in reversed(terms):
        with_comma = rules.add(f"{comma} {term} {behind}")
        first = f"{term} {behind}"
        if needed:
            behind, alone = with_comma, rules.add(first)
        else:
            alone = rules.add(f"({first} | {alone})")
            behind = f"({with_comma} | {behind})" if behind else f"{with_comma}?"
            behind = rules.add(behind)
    return alone


def _reads_text(body: Body, types: frozenset[str]) -> bool:
    """True if the parser reads values of these types as bare text."""
    match body:
        case ParametersBody(attributes=""):
            return reads_text(types, body)
        case ElementsBody():
            return not types or types == _STRING
        case _:
            return types == _STRING


def _ends_of_text(body: ParametersBody) -> str:
    """Return a regex for what ends a value: its closing tag, or the next argument's opening."""
    key = f"[^{''.join(map(quoted, ends_of_key(body)))}]+"
    return f"{quoted(body.value_close)}|{quoted(body.key_open)}{key}{quoted(body.key_end)}"


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
