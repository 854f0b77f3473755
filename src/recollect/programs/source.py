"""From the text of a program to a checked tree: what the language does not have is refused here.

Python's parser reads it; lengths and nesting are limited before, so that the parser cannot be
overrun. Nothing is compiled.
"""

from __future__ import annotations

import ast
import re
import warnings

from recollect.programs.budget import LARGEST, ProgramError

DEEPEST_BRACKETS = 30
DEEPEST = 60
"""Levels of the tree: each takes some levels of the interpreter's own stack."""
MOST_SIGNS = 40
"""Signs and `not` in a row."""

ALLOWED = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While),
    *(ast.Break, ast.Continue, ast.Pass, ast.Delete),
    *(ast.BoolOp, ast.And, ast.Or, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.IfExp),
    *(ast.Compare, ast.cmpop, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.Subscript),
    *(ast.Slice, ast.Name, ast.Load, ast.Store, ast.Del, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.JoinedStr, ast.FormattedValue, ast.Lambda, ast.arguments, ast.arg),
)
_WHY = {
    ast.Import: "there are no imports: findall, count, search and the others are there already",
    ast.ImportFrom: "there are no imports: findall, count, search and the others are there already",
    ast.FunctionDef: "there are no functions of your own: write the steps out, or loop",
    ast.Try: "there is no try: check before",
    ast.Starred: "there is no unpacking with a star",
    ast.NamedExpr: "there is no :=, assign on a line of its own",
    ast.Return: "there is no return: end with answer(...)",
}
_STRINGS = re.compile(
    r"'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|#.*",
    re.DOTALL,
)
_SIGNS = re.compile(rf"(?:(?:[-+~]|\bnot\b)\s*){{{MOST_SIGNS}}}")


def parsed(source: str, most: int) -> ast.Module:
    """Read a program; raise a ProgramError with the line of what is wrong."""
    if len(source) > most:
        raise ProgramError(f"the program has {len(source)} characters; at most {most} are allowed")
    _check_nesting(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" is a warning of Python's, and a digit here
            tree = ast.parse(source)
    except SyntaxError as error:
        raise ProgramError(f"{_reason(error)}", error.lineno or 1) from None
    except (ValueError, MemoryError, RecursionError, OverflowError):
        raise ProgramError("the program cannot be read: it is nested too deeply", 1) from None
    _check(tree)
    return tree


def _reason(error: SyntaxError) -> str:
    """Say what Python's parser found, in its first words: later ones differ by version."""
    first = re.split(r"[.:(]", error.msg or "", maxsplit=1)[0].strip()
    return f"the syntax is wrong: {first[:80]}"


def _check_nesting(source: str) -> None:
    """Limit brackets inside brackets and signs in a row; texts and comments are left out."""
    bare = _STRINGS.sub(" ", source)
    if _SIGNS.search(bare):
        raise ProgramError(f"the program has over {MOST_SIGNS} signs in a row")
    depth = 0
    for line, text in enumerate(bare.split("\n"), start=1):
        for char in text:
            depth += (char in "([{") - (char in ")]}")
            if depth > DEEPEST_BRACKETS:
                raise ProgramError(f"brackets are nested over {DEEPEST_BRACKETS} deep", line)


def _check(tree: ast.Module) -> None:
    """Refuse every node that the language does not have, without recursion."""
    keys = _key_functions(tree)
    left: list[tuple[ast.AST, int, int]] = [(tree, 0, 1)]
    while left:
        node, depth, line = left.pop()
        line = getattr(node, "lineno", line)
        if depth > DEEPEST:
            raise ProgramError("the program is nested too deeply", line)
        if not isinstance(node, ALLOWED):
            name = type(node).__name__.lower()
            raise ProgramError(_WHY.get(type(node), f"the language has no {name}"), line)
        _check_name(node, line)
        if isinstance(node, ast.Constant):
            _check_constant(node.value, line)
        if isinstance(node, ast.Lambda) and id(node) not in keys:
            raise ProgramError("lambda is only for key= in sorted, min and max", line)
        left += [(child, depth + 1, line) for child in ast.iter_child_nodes(node)]


def _key_functions(tree: ast.Module) -> set[int]:
    """Find the lambdas that are a key: they take one value and nothing else."""
    found: set[int] = set()
    for node in _walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "key":
            match node.value:
                case ast.Lambda(args=ast.arguments(args=[_one], defaults=[], posonlyargs=[])):
                    own = node.value.args
                    if own.vararg is None and own.kwarg is None and not own.kwonlyargs:
                        found.add(id(node.value))
    return found


def _walk(tree: ast.AST) -> list[ast.AST]:
    found, left = [], [tree]
    while left:
        node = left.pop()
        found.append(node)
        left += ast.iter_child_nodes(node)
    return found


def _check_name(node: ast.AST, line: int) -> None:
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    if isinstance(name, str) and ("__" in name or (name.startswith("_") and name != "_")):
        raise ProgramError("names do not begin with _ and hold no __", line)


def _check_constant(value: object, line: int) -> None:
    if type(value) is int and not -LARGEST < value < LARGEST:
        raise ProgramError("a number is too large: whole numbers stay below 2**60", line)
    if value is not None and type(value) not in (bool, int, float, str):
        raise ProgramError(f"the language has no {type(value).__name__}", line)
