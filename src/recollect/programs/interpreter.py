"""The interpreter: does one statement after another, and knows the line it is at."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from recollect.programs.budget import ProgramError
from recollect.programs.expressions import Expressions
from recollect.programs.methods import method
from recollect.programs.operators import BINARY
from recollect.programs.values import Value, truth


class Break(Exception):
    """Leaves a loop."""


class Continue(Exception):
    """Takes a loop's next round."""


class Interpreter(Expressions):
    """One run of one program over some variables, which it changes."""

    def run(self, tree: ast.Module) -> None:
        """Run a program; what its last line says is printed. Errors know their line."""
        try:
            value: Value = None
            for statement in tree.body:
                value = self.do(statement)
            if value is not None:
                self.show(value)
        except (Break, Continue):
            raise ProgramError("break and continue are for loops", self.line) from None
        except ProgramError as error:
            error.line = error.line or self.line
            raise
        except (RecursionError, MemoryError):
            raise ProgramError("the program is nested too deeply", self.line) from None

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Do one statement after another."""
        for statement in statements:
            self.do(statement)

    def do(self, node: ast.stmt) -> Value:
        """Do a statement; return the value of an expression."""
        self.line = node.lineno
        self.budget.step()
        match node:
            case ast.Expr(value=value):
                return self.value(value)
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self.bind(target, found)
            case ast.AugAssign(target=target, op=op, value=value):
                self.change(target, op, self.value(value))
            case ast.If(test=test, body=body, orelse=other):
                self.block(body if truth(self.value(test)) else other)
            case ast.For():
                self.loop(node)
            case ast.While(test=test, body=body, orelse=[]):
                while truth(self.value(test)):
                    if self.once(body):
                        break
            case ast.Break():
                raise Break
            case ast.Continue():
                raise Continue
            case ast.Pass():
                pass
            case ast.Delete(targets=[ast.Name(id=name)]) if name in self.variables:
                del self.variables[name]
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.bind(target, self.value(value))
            case _:
                raise ProgramError(f"this {type(node).__name__.lower()} is not supported")
        return None

    def loop(self, node: ast.For) -> None:
        """Go through a value, which later changes of it do not reach."""
        if node.orelse:
            raise ProgramError("loops have no else")
        for one in self.through(self.value(node.iter)):
            self.budget.step()
            self.bind(node.target, one)
            if self.once(node.body):
                break

    def once(self, body: Sequence[ast.stmt]) -> bool:
        """Do one round of a loop; tell whether it was the last."""
        try:
            self.block(body)
        except Continue:
            return False
        except Break:
            return True
        return False

    def change(self, target: ast.expr, op: ast.operator, value: Value) -> None:
        """target op= value; a list grows in place, as in Python."""
        now = self.value(target)
        if type(now) is list and isinstance(op, ast.Add):
            method(now, "extend")(self.budget, now, value)
            return
        if type(op) not in BINARY:
            raise ProgramError(f"the language has no {type(op).__name__.lower()}")
        self.bind(target, BINARY[type(op)](now, value, self.budget))
