"""Expressions: worked out a counted step at a time.

A value never leaves the few kinds of `values`; names are looked up in two tables, variables and
functions; and nothing of Python is reached through either.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.calls import arguments, host_functions
from recollect.programs.functions import FUNCTIONS
from recollect.programs.host import Host
from recollect.programs.methods import method
from recollect.programs.operators import BINARY, Binary, compare, item, negative, part
from recollect.programs.patterns import Patterns
from recollect.programs.showing import formatted, shown, written
from recollect.programs.values import NUMBERS, Set, Value, items, key, kind, number, truth


class Expressions:
    """Works out values over some variables, and gives values to names."""

    def __init__(self, variables: dict[str, Value], budget: Budget, host: Host) -> None:
        self.variables = variables
        self.assigned: set[str] = set()
        """The names that the program gave a value to."""
        self.budget = budget
        self.output: list[str] = []
        self.patterns = Patterns(budget)
        self.line = 0
        self.hosted = host_functions(self, host)

    def show(self, *values: Value) -> None:
        """Add a line to what the program says."""
        line = " ".join(shown(value, self.budget) for value in values)
        self.budget.take(4 * len(line) + 56)
        self.output.append(line)

    def value(self, node: ast.expr) -> Value:
        """Work out an expression."""
        self.budget.step()
        work = _EXPRESSIONS.get(type(node))
        if work is None:
            raise ProgramError(f"{_ALONE.get(type(node), 'this')} cannot be a value of its own")
        return work(self, node)

    def name(self, node: ast.Name) -> Value:
        """Look a variable up."""
        if node.id not in self.variables:
            if node.id in FUNCTIONS or node.id in self.hosted:
                raise ProgramError(f"{node.id} is a function: call it")
            raise ProgramError(f"there is no variable {node.id[:40]}")
        return self.variables[node.id]

    def both(self, node: ast.BoolOp) -> Value:
        """`and` and `or`, which stop early."""
        stop = isinstance(node.op, ast.Or)
        found: Value = None
        for one in node.values:
            found = self.value(one)
            if truth(found) is stop:
                break
        return found

    def signed(self, node: ast.UnaryOp) -> Value:
        """`not`, `-` and `+`."""
        found = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not truth(found)
        if isinstance(node.op, ast.USub):
            return negative(found)
        if isinstance(node.op, ast.UAdd) and type(found) in NUMBERS:
            return number(+found)
        raise ProgramError(f"this sign is not for {kind(found)}")

    def compared(self, node: ast.Compare) -> bool:
        """A chain of comparisons, which stops early."""
        left = self.value(node.left)
        for op, right in zip(node.ops, node.comparators, strict=True):
            other = self.value(right)
            if not compare(op, left, other, self.budget):
                return False
            left = other
        return True

    def picked(self, node: ast.Subscript) -> Value:
        """value[index] and value[low:high:step]"""
        inside = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            low, high, step = (None if bound is None else self.value(bound) for bound in bounds)
            return part(inside, low, high, step, self.budget)
        return item(inside, self.value(node.slice), self.budget)

    def listed(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Work out several expressions."""
        self.budget.take(56 + 8 * len(nodes))
        return [self.value(node) for node in nodes]

    def mapped(self, node: ast.Dict) -> dict[Value, Value]:
        """{k: v}"""
        found: dict[Value, Value] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                raise ProgramError("there is no unpacking with stars")
            self.budget.take(100)
            found[key(self.value(name), self.budget)] = self.value(value)
        return found

    def comprehended(self, node: Any) -> Value:
        """[x for ...], {x for ...} and {k: v for ...}; their names end with them."""
        found: list[Value] = []
        mapping: dict[Value, Value] = {}

        def one() -> None:
            if isinstance(node, ast.DictComp):
                self.budget.take(100)
                name = key(self.value(node.key), self.budget)
                mapping[name] = self.value(node.value)
            else:
                self.budget.take(16)
                found.append(self.value(node.elt))

        names = {n.id for g in node.generators for n in ast.walk(g.target) if type(n) is ast.Name}
        before = {name: self.variables[name] for name in names if name in self.variables}
        assigned = set(self.assigned)
        try:
            self.generated(node.generators, one)
        finally:
            for name in names:
                self.variables.pop(name, None)
            self.variables |= before
            self.assigned = assigned
        if isinstance(node, ast.DictComp):
            return mapping
        if isinstance(node, ast.SetComp):
            return Set(key(value, self.budget) for value in found)
        return found

    def generated(self, generators: Sequence[ast.comprehension], one: Callable[[], None]) -> None:
        """Go through the loops of a comprehension, the first outermost."""
        if not generators:
            one()
            return
        first, *rest = generators
        for value in self.through(self.value(first.iter)):
            self.budget.step()
            self.bind(first.target, value)
            if all(truth(self.value(test)) for test in first.ifs):
                self.generated(rest, one)

    def text(self, node: ast.JoinedStr) -> str:
        """An f-string."""
        pieces: list[str] = []
        for piece in node.values:
            match piece:
                case ast.Constant(value=str(text)):
                    pieces.append(text)
                case ast.FormattedValue(value=value, conversion=conversion, format_spec=spec):
                    found = self.value(value)
                    if conversion == ord("r"):
                        found = written(found, self.budget)
                    form = self.text(spec) if isinstance(spec, ast.JoinedStr) else ""
                    pieces.append(formatted(found, form, self.budget))
        self.budget.take(4 * sum(map(len, pieces)))
        return "".join(pieces)

    # --- calls --------------------------------------------------------------------------------

    def called(self, node: ast.Call) -> Value:
        """Call a function of the language, or a method of a value."""
        self.budget.step(2)
        first: tuple[Value, ...]
        match node.func:
            case ast.Name(id=name):
                function, first = self.known(name), (self.budget,)
            case ast.Attribute(value=ast.Name(id="re"), attr=name):  # as models are used to
                function, first = self.known(f"re.{name}"), (self.budget,)
            case ast.Attribute(value=inside, attr=name):
                value = self.value(inside)
                function, first = method(value, name), (self.budget, value)
            case _:
                raise ProgramError("only functions and methods can be called, by their names")
        values = [self.value(one) for one in node.args]
        named = {one.arg: self.keyword(one) for one in node.keywords if one.arg}
        if len(named) < len(node.keywords):
            raise ProgramError("there is no unpacking with stars")
        arguments(name, function, len(first), values, named)
        line = self.line
        found = function(*first, *values, **named)
        self.line = line
        return found

    def known(self, name: str) -> Callable[..., Value]:
        """Look a function up."""
        function = self.hosted.get(name) or FUNCTIONS.get(name)
        if function is None:
            raise ProgramError(f"there is no function {name[:40]}")
        return function

    def keyword(self, node: ast.keyword) -> Value:
        """A named argument; `key` is a function."""
        if node.arg != "key":
            return self.value(node.value)
        match node.value:
            case ast.Constant(value=None):
                return None
            case ast.Lambda(args=given, body=body):
                return self.function(given.args[0].arg, body)
            case ast.Name(id=name) if name in FUNCTIONS:
                known = FUNCTIONS[name]
                return lambda value: known(self.budget, value)
            case ast.Attribute(value=ast.Name(id="str"), attr=name):
                return lambda value: self.method_of(value, name, ())
            case ast.Attribute(value=inside, attr="get"):
                table = self.value(inside)
                return lambda value: self.method_of(table, "get", (value,))
        raise ProgramError("key= takes a lambda, a function such as len, or d.get")

    def method_of(self, value: Value, name: str, given: tuple[Value, ...]) -> Value:
        """Call a method in a key."""
        self.budget.step(2)
        found = method(value, name)
        arguments(name, found, 2, given, {})
        return found(self.budget, value, *given)

    def function(self, name: str, body: ast.expr) -> Callable[[Value], Value]:
        """A lambda, whose name is its own."""

        def call(value: Value) -> Value:
            before: Mapping[str, Value] = (
                {name: self.variables[name]} if name in self.variables else {}
            )
            self.variables[name] = value
            try:
                return self.value(body)
            finally:
                del self.variables[name]
                self.variables |= before

        return call

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a value to a name, a place in a list or dict, or several names."""
        match target:
            case ast.Name(id=name):
                self.variables[name] = value
                self.assigned.add(name)
            case ast.Tuple(elts=names) | ast.List(elts=names):
                found = items(value, self.budget)
                if len(found) != len(names):
                    raise ProgramError(f"{len(found)} values for {len(names)} names")
                for inner, one in zip(names, found, strict=True):
                    self.bind(inner, one)
            case ast.Subscript(value=inside, slice=place) if not isinstance(place, ast.Slice):
                self.put(self.value(inside), self.value(place), value)
            case _:
                raise ProgramError("only names and places in lists and dicts are assigned to")

    def put(self, inside: Value, place: Value, value: Value) -> None:
        """inside[place] = value"""
        if type(inside) is dict:
            self.budget.take(100)
            inside[key(place, self.budget)] = value
        elif type(inside) is list:
            item(inside, place, self.budget)  # refuses a place outside
            inside[place] = value
        else:
            raise ProgramError(f"{kind(inside)} cannot be assigned to")

    def through(self, value: Value) -> Sequence[Value]:
        """Return what a loop goes through; a range is never written out."""
        return value if type(value) is range else items(value, self.budget)


def _operator(op: ast.operator) -> Binary:
    if type(op) not in BINARY:
        raise ProgramError(f"the language has no {type(op).__name__.lower()}")
    return BINARY[type(op)]


_ALONE = {ast.Attribute: "an attribute", ast.Lambda: "a lambda", ast.Slice: "a slice"}
_EXPRESSIONS: dict[type, Callable[[Expressions, Any], Value]] = {
    ast.Constant: lambda i, node: node.value,
    ast.Name: Expressions.name,
    ast.BinOp: lambda i, node: _operator(node.op)(
        i.value(node.left), i.value(node.right), i.budget
    ),
    ast.BoolOp: Expressions.both,
    ast.UnaryOp: Expressions.signed,
    ast.Compare: Expressions.compared,
    ast.IfExp: lambda i, node: i.value(node.body if truth(i.value(node.test)) else node.orelse),
    ast.Call: Expressions.called,
    ast.Subscript: Expressions.picked,
    ast.List: lambda i, node: i.listed(node.elts),
    ast.Tuple: lambda i, node: tuple(i.listed(node.elts)),
    ast.Set: lambda i, node: Set(key(v, i.budget) for v in i.listed(node.elts)),
    ast.Dict: Expressions.mapped,
    ast.ListComp: Expressions.comprehended,
    ast.SetComp: Expressions.comprehended,
    ast.GeneratorExp: Expressions.comprehended,
    ast.DictComp: Expressions.comprehended,
    ast.JoinedStr: Expressions.text,
}
