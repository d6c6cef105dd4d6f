"""Finds the words that a chat template compares a variable with, in its syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jinja2 import nodes

_COMPARISONS = (nodes.Compare, nodes.Test, nodes.Filter, nodes.Getitem, nodes.Call)
_BINDINGS = (nodes.Assign, nodes.AssignBlock, nodes.Call, nodes.For, nodes.With)
_Name = tuple[str, str]  # of a variable, and of an attribute or empty


def compared_words(template: nodes.Template, variable: str) -> frozenset[str]:
    """Return the texts that this variable is compared with, looked up in or set to, also under
    other names that the template gives it."""
    return frozenset(_Words(template, variable).found())


class _Words:
    """``_same``: the names that have the variable's value."""

    def __init__(self, template: nodes.Template, variable: str) -> None:
        self._template = template
        self._assigned: dict[_Name, list[nodes.Node]] = {}
        for name, value in _assignments(template):
            self._assigned.setdefault(name, []).append(value)
        self._same: set[_Name] = {(variable, "")}
        while more := {
            name
            for name, values in self._assigned.items()
            if name not in self._same and any(map(self._is_same, values))
        }:
            self._same |= more

    def found(self) -> Iterator[str]:
        for name in self._same:
            for value in self._assigned.get(name, ()):
                yield from self._texts(value)
        for node in self._template.find_all(_COMPARISONS):
            for value in self._compared(node):
                yield from self._texts(value)

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
        """True if the value of this expression can be the variable's, perhaps in lower case or
        with more text."""
        match value:
            case nodes.Filter(node=inner) | nodes.Getitem(node=inner):
                return self._is_same(inner)
            case nodes.Concat(nodes=parts):
                return any(map(self._is_same, parts))
            case nodes.Add(left=one, right=other):
                return self._is_same(one) or self._is_same(other)
            case nodes.Call(node=nodes.Getattr(node=inner)):
                return self._is_same(inner)
            case nodes.CondExpr(expr1=one, expr2=other) | nodes.Or(left=one, right=other):
                return self._is_same(one) or self._is_same(other)
            case nodes.And(right=inner):
                return self._is_same(inner)
        return _name(value) in self._same

    def _texts(self, value: nodes.Node | None, depth: int = 4) -> Iterator[str]:
        """Yield the texts that this can be or contains, of a dictionary its keys."""
        parts: Iterable[nodes.Node | None] = ()
        match value:
            case nodes.Const(value=str(text)):
                yield text
            case nodes.List(items=items) | nodes.Tuple(items=items):
                parts = items
            case nodes.Add(left=one, right=other):  # of lists
                parts = [part for part in (one, other) if not isinstance(part, nodes.Const)]
            case nodes.Dict(items=pairs):
                parts = [pair.key for pair in pairs]
            case nodes.CondExpr(expr1=one, expr2=other) | nodes.Or(left=one, right=other):
                parts = one, other
            case nodes.Filter(node=one) | nodes.Call(node=nodes.Getattr(node=one)):
                parts = (one,)
            case _ if depth and (name := _name(value)) is not None:
                parts, depth = self._assigned.get(name, ()), depth - 1
        for part in parts:
            yield from self._texts(part, depth)


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
