"""Finds the words that a chat template compares a variable with, in its syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jinja2 import nodes

_COMPARISONS = (nodes.Compare, nodes.Test, nodes.Filter, nodes.Getitem, nodes.Call)
_BINDINGS = (nodes.Assign, nodes.AssignBlock, nodes.Call, nodes.For, nodes.With)
_JOINED = (nodes.Add, nodes.Concat)
_Name = tuple[str, str]  # of a variable, and of an attribute or empty


def compared_words(template: nodes.Template, variable: str) -> frozenset[str]:
    """Return the texts that this variable is compared with, looked up in or set to, also under
    other names that the template gives it."""
    return frozenset(_Words(template, variable).found())


class _Words:
    """``_same``: the names that have the variable's value. A text that grows (``out = out + …``)
    is not one of them, whatever is appended to it."""

    def __init__(self, template: nodes.Template, variable: str) -> None:
        self._template = template
        self._assigned: dict[_Name, list[nodes.Node]] = {}
        receivers: dict[_Name, list[_Name]] = {}
        for name, value in _assignments(template):
            self._assigned.setdefault(name, []).append(value)
            sources = _sources(value)
            if name in sources and any(isinstance(one, _JOINED) for one in _seen_through(value)):
                continue
            for source in sources:
                receivers.setdefault(source, []).append(name)
        self._same = _reached(receivers, (variable, ""))

    def found(self) -> Iterator[str]:
        values = [value for name in self._same for value in self._assigned.get(name, ())]
        for node in self._template.find_all(_COMPARISONS):
            values += self._compared(node)
        return self._texts(values)

    def _compared(self, node: nodes.Node) -> Sequence[nodes.Node]:
        """Return what the variable is compared with here, if it is."""
        match node:
            case nodes.Compare(expr=first, ops=others):
                operands = [first, *(operand.expr for operand in others)]
                return operands if any(map(self._is_same, operands)) else ()
            case nodes.Test(node=inner, args=values) if self._is_same(inner):
                return values
            case nodes.Filter(name="default" | "d", args=values) if self._is_same(node):
                return values
            case nodes.Filter(node=nodes.Node() as words, name="select" | "reject", args=values):
                return [words] if any(map(self._is_same, values)) else ()
            case nodes.Getitem(node=words, arg=key) if self._is_same(key):
                return [words]
            case nodes.Call(node=nodes.Getattr(node=words, attr=method), args=keys):
                if method in ("startswith", "endswith") and self._is_same(words):
                    return keys
                return [words] if any(map(self._is_same, keys)) else ()  # words.get(variable)
        return ()

    def _is_same(self, value: nodes.Node | None) -> bool:
        return not self._same.isdisjoint(_sources(value))

    def _texts(self, values: Iterable[nodes.Node | None]) -> Iterator[str]:
        """Yield the texts that these can be or contain, of a dictionary its keys. A text that is
        joined to others is only a part of one."""
        waiting = [(value, False) for value in values]
        expanded: set[tuple[_Name, bool]] = set()
        while waiting:
            value, is_part = waiting.pop()
            parts: Iterable[nodes.Node | None] = ()
            match value:
                case nodes.Const(value=str(text)) if text and not is_part:
                    yield text
                case nodes.List(items=items) | nodes.Tuple(items=items):
                    parts, is_part = items, False
                case nodes.Add(left=one, right=other):
                    parts, is_part = (one, other), True
                case nodes.Dict(items=pairs):
                    parts, is_part = [pair.key for pair in pairs], False
                case nodes.CondExpr(expr1=one, expr2=other) | nodes.Or(left=one, right=other):
                    parts = one, other
                case nodes.Filter(node=one) | nodes.Call(node=nodes.Getattr(node=one)):
                    parts = (one,)
                case _ if (name := _name(value)) is not None and (name, is_part) not in expanded:
                    expanded.add((name, is_part))
                    parts = self._assigned.get(name, ())
            waiting += [(part, is_part) for part in parts]


def _reached(edges: Mapping[_Name, Iterable[_Name]], start: _Name) -> set[_Name]:
    reached, waiting = {start}, [start]
    while waiting:
        new = set(edges.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    return reached


def _sources(value: nodes.Node | None) -> set[_Name]:
    """Return the names whose value this expression can have."""
    return {name for one in _seen_through(value) if (name := _name(one)) is not None}


def _seen_through(value: nodes.Node | None) -> Iterator[nodes.Node]:
    """Yield this expression and those inside it whose value it can have, perhaps in lower case or
    with more text."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        match one:
            case None:
                continue
            case (
                nodes.Filter(node=inner)
                | nodes.Getitem(node=inner)
                | nodes.Call(node=nodes.Getattr(node=inner))
                | nodes.And(right=inner)
            ):
                waiting.append(inner)
            case nodes.Concat(nodes=parts):
                waiting += parts
            case (
                nodes.Add(left=first, right=second)
                | nodes.Or(left=first, right=second)
                | nodes.CondExpr(expr1=first, expr2=second)
            ):
                waiting += (first, second)
        yield one


def _assignments(template: nodes.Template) -> Iterator[tuple[_Name, nodes.Node]]:
    for target, value in _bindings(template):
        for name, part in _unpacked(target, value):
            if name is None:
                continue
            yield name, part
            if isinstance(part, nodes.Call):  # namespace(name=value)
                yield from (((name[0], field.key), field.value) for field in part.kwargs)


def _unpacked(target: nodes.Node, value: nodes.Node) -> Iterator[tuple[_Name | None, nodes.Node]]:
    if not isinstance(target, nodes.Tuple):
        yield _name(target), value
    elif isinstance(value, nodes.Tuple):
        yield from zip(map(_name, target.items), value.items, strict=False)
    else:
        yield from ((_name(one), value) for one in target.items)


def _bindings(template: nodes.Template) -> Iterator[tuple[nodes.Node, nodes.Node]]:
    """Yield what the template names, and what it names so; of a loop the list."""
    macros = {macro.name: macro.args for macro in template.find_all(nodes.Macro)}
    for node in template.find_all(_BINDINGS):
        match node:
            case nodes.Assign(target=target, node=value):
                yield target, value
            case nodes.For(target=target, iter=value):
                yield target, nodes.List([value])
            case nodes.With(targets=targets, values=values):
                yield from zip(targets, values, strict=False)
            case nodes.AssignBlock(target=target, body=body):
                outputs = (part for part in body if isinstance(part, nodes.Output))
                yield from ((target, value) for output in outputs for value in output.nodes)
            case nodes.Call(node=nodes.Name(name=name), args=values, kwargs=named):
                parameters = macros.get(name, [])
                yield from zip(parameters, values, strict=False)
                given = {part.key: part.value for part in named}
                yield from ((one, given[one.name]) for one in parameters if one.name in given)


def _name(value: nodes.Node | None) -> _Name | None:
    match value:
        case nodes.Name(name=name):
            return name, ""
        case nodes.NSRef(name=name, attr=attribute):
            return name, attribute
        case nodes.Getattr(node=nodes.Name(name=name), attr=attribute):
            return name, attribute
    return None
