"""Mutation operators over `ast`: comparison, logic, arithmetic, constants, results, statements, arguments.

What only a person reads is left alone: annotations, decorators, strings, the arguments of errors and
log lines, and functions that format text; so are assertions.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_SWAPPED_OPERATORS: Final[dict[type[ast.AST], tuple[type[ast.AST], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
}
_SWAPPED_FUNCTIONS: Final = {"max": "min", "min": "max", "any": "all", "all": "any"}
_SKIPPED_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "pattern", "exc"})
_TEXT_FUNCTIONS: Final = ("__str__", "_format", "describe")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module's tree, named by the enclosing function and the changed statement."""

    name: str
    apply: Callable[[], None]  # changes the tree that it was listed from


def list_mutants(tree: ast.Module) -> list[Mutant]:
    """Return all mutants of a module; equal names get a number."""
    mutants: list[Mutant] = []
    seen: dict[str, int] = {}
    for scope, statement, place in _iterate_places(tree, (), tree):
        for replacement in _replacements(place):
            name = _describe(scope, statement, place, replacement)
            seen[name] = seen.get(name, 0) + 1
            numbered = name if seen[name] == 1 else f"{name} #{seen[name]}"
            mutants.append(Mutant(numbered, lambda p=place, r=replacement: p.put(r)))
    return mutants


@dataclass(frozen=True, slots=True)
class _Place:
    """A node by the field of its parent that holds it."""

    parent: ast.AST
    field: str
    position: int | None
    node: ast.AST

    def put(self, node: ast.AST) -> None:
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


def _iterate_places(
    parent: ast.AST, scope: tuple[str, ...], statement: ast.AST
) -> Iterator[tuple[tuple[str, ...], ast.AST, _Place]]:
    for field, value in ast.iter_fields(parent):
        if field in _SKIPPED_FIELDS:
            continue
        for position, node in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(node, ast.AST) or _is_text(node):
                continue
            inner = (*scope, node.name) if isinstance(node, ast.FunctionDef | ast.ClassDef) else scope
            around = node if isinstance(node, ast.stmt) else statement
            yield inner, around, _Place(parent, field, position, node)
            yield from _iterate_places(node, inner, around)


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.keyword(arg="strict"):  # zip's is an assertion
            return True
        case ast.FunctionDef(name=name):
            return name.startswith(_TEXT_FUNCTIONS)
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.Expr(value=ast.Constant() | ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
    return False


def _describe(scope: tuple[str, ...], statement: ast.AST, place: _Place, replacement: ast.AST) -> str:
    before = _first_line(statement)
    place.put(replacement)
    after = _first_line(replacement if place.node is statement else statement)
    place.put(place.node)
    return f"{'.'.join(scope) or 'module'}: {before} → {after}"


def _first_line(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]


def _replacements(place: _Place) -> Iterator[ast.AST]:
    node: Any = place.node
    yield from (other() for other in _SWAPPED_OPERATORS.get(type(node), ()))
    if place.field in {"test", "ifs"} and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)
    for change in (_change_value, _change_call, _delete_statement):
        yield from change(node)


def _change_value(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 2 or 1.0)
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))


def _change_call(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _SWAPPED_FUNCTIONS:
            yield ast.Call(ast.Name(_SWAPPED_FUNCTIONS[name], ast.Load()), args, keywords)
        case ast.Call(args=[first, second, *rest], func=func, keywords=keywords) if not any(
            isinstance(argument, ast.Starred) for argument in (first, second)
        ) and ast.dump(first) != ast.dump(second):
            yield ast.Call(func, [second, first, *rest], keywords)


def _delete_statement(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
