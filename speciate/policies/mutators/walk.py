"""Walk a syntax tree and collect the places where the program may be edited."""

import ast
from typing import Final

from speciate.policies.mutators.source import Expression, Number, Operator, Scope, Span, Statement

_BINARY: Final[dict[type[ast.operator], tuple[bytes, tuple[bytes, ...]]]] = {
    ast.Add: (b"+", (b"-", b"*")),
    ast.Sub: (b"-", (b"+", b"*")),
    ast.Mult: (b"*", (b"+", b"-", b"/")),
    ast.Div: (b"/", (b"*", b"-", b"//")),
    ast.FloorDiv: (b"//", (b"/", b"%", b"*")),
    ast.Mod: (b"%", (b"//", b"*")),
    ast.Pow: (b"**", (b"*", b"+")),
}
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[bytes, tuple[bytes, ...]]]] = {
    ast.Lt: (b"<", (b"<=", b">", b">=")),
    ast.LtE: (b"<=", (b"<", b">", b">=")),
    ast.Gt: (b">", (b">=", b"<", b"<=")),
    ast.GtE: (b">=", (b">", b"<", b"<=")),
    ast.Eq: (b"==", (b"!=",)),
    ast.NotEq: (b"!=", (b"==",)),
}
_LARGEST: Final[dict[type, float]] = {int: 10**15, float: 1e300}
_SIZING: Final = frozenset(
    {"range", "zeros", "ones", "full", "empty", "eye", "reshape", "round", "islice", "arange", "linspace"}
)
_KEPT: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Global)
_ATOMIC: Final = frozenset({ast.Name, ast.Constant, ast.Call, ast.Subscript, ast.Attribute})
_REPLACEABLE: Final = _ATOMIC | {ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp}
_INNER_SCOPES: Final = frozenset({ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp})
_DISPLAYS: Final = frozenset({ast.List, ast.Tuple, ast.Set})
_WRITTEN: Final = (ast.Store, ast.Del)


class Walker:
    """Collector of the places of one program: ``starts`` are offsets of its lines, edits are allowed in ``regions``."""

    def __init__(self, data: bytes, starts: list[int], regions: tuple[Span, ...]) -> None:
        self.numbers: list[Number] = []
        self.operators: list[Operator] = []
        self.expressions: list[Expression] = []
        self.statements: list[Statement] = []
        self.elements: list[tuple[Span, ...]] = []
        self.definitions: dict[str, Span] = {}
        self._data = data
        self._starts = starts
        self._regions = regions
        self._scopes = 0
        self._bodies = 0

    def walk(self, tree: ast.Module) -> None:
        self._body(tree.body, ())

    def _body(self, body: list[ast.stmt], scope: Scope) -> None:
        self._bodies += 1
        number = self._bodies
        for position, node in enumerate(body):
            docstring = position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not docstring:
                if not isinstance(node, _KEPT):
                    self._statement(node, number, alone=len(body) == 1)
                self._inside_statement(node, scope)

    def _inside_statement(self, node: ast.stmt, scope: Scope) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if self._is_allowed(span := self._span(node)):
                self.definitions[node.name] = span
            defaults = () if isinstance(node, ast.ClassDef) else (*node.args.defaults, *node.args.kw_defaults)
            for default in filter(None, defaults):
                self._expression(default, scope)
            self._body(node.body, self._inner(scope))
            return
        if isinstance(node, ast.AugAssign):
            word, choices = _BINARY.get(type(node.op), (b"", ()))
            self._sign(node.target, node.value, word + b"=", tuple(choice + b"=" for choice in choices))
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "handlers", "cases") and value:
                self._field(value, scope)
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._body(branch.body, scope)

    def _field(self, value: object, scope: Scope) -> None:
        if isinstance(value, ast.expr):
            self._expression(value, scope)
        elif isinstance(value, list) and isinstance(value[0], ast.stmt):
            self._body(value, scope)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.withitem):
                    self._expression(item.context_expr, scope)
                elif isinstance(item, ast.expr):
                    self._expression(item, scope)

    def _expression(self, node: ast.expr, scope: Scope, *, structural: bool = False, readonly: bool = False) -> None:
        kind = type(node)
        if kind is ast.JoinedStr:
            # Positions inside f-strings are wrong in Python 3.11.
            return
        span = self._span(node)
        allowed = self._is_allowed(span)
        if (number := _number(node)) is not None:
            if allowed:
                self._record_number(span, number, structural)
                if not readonly:
                    self.expressions.append(Expression(span, scope, kind is ast.Constant))
            return
        if allowed and not readonly:
            self._record_replaceable(node, span, scope)
        if kind in _DISPLAYS and allowed:
            self._display(node)
        self._signs(node)
        self._children(node, self._inner(scope) if kind in _INNER_SCOPES else scope, structural=structural)

    def _children(self, node: ast.expr, scope: Scope, *, structural: bool) -> None:
        match node:
            case ast.Name() | ast.Constant() | ast.Attribute(value=ast.Name()):
                return
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                for element in elements:
                    # The constants of a table are tuned, not replaced by expressions.
                    self._expression(element, scope, structural=structural, readonly=_number(element) is not None)
            case ast.Call(func=func, args=args, keywords=keywords):
                sizing = getattr(func, "id", getattr(func, "attr", "")) in _SIZING
                self._expression(func, scope, readonly=True)
                for argument in (*args, *(keyword.value for keyword in keywords)):
                    self._expression(argument, scope, structural=sizing)
            case ast.Subscript(value=value, slice=index):
                self._expression(value, scope)
                self._expression(index, scope, structural=True)
            case ast.Lambda(body=body):
                self._expression(body, scope)
            case _:
                self._other_children(node, scope, structural=structural)

    def _other_children(self, node: ast.expr, scope: Scope, *, structural: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child, scope, structural=structural)
            elif isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    self._expression(part, scope)

    def _record_replaceable(self, node: ast.expr, span: Span, scope: Scope) -> None:
        kind = type(node)
        if kind in _REPLACEABLE and not isinstance(getattr(node, "ctx", None), _WRITTEN):
            parts = tuple(self._span(part) for part in _parts(node))
            self.expressions.append(Expression(span, scope, kind in _ATOMIC, parts))

    def _record_number(self, span: Span, value: int | float, structural: bool) -> None:
        # Directly after a word ("return-1") a new value would need a separating blank.
        glued = self._data[max(0, span.start - 1) : span.start].isalnum()
        if not glued and abs(value) < _LARGEST[type(value)]:
            self.numbers.append(Number(span, value, structural))

    def _signs(self, node: ast.expr) -> None:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                self._sign(left, right, *_BINARY[type(op)])
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARISONS:
                self._sign(left, right, *_COMPARISONS[type(sign)])
            case ast.BoolOp(op=ast.And(), values=[left, right]):
                self._sign(left, right, b"and", (b"or",))
            case ast.BoolOp(op=ast.Or(), values=[left, right]):
                self._sign(left, right, b"or", (b"and",))

    def _sign(self, left: ast.expr, right: ast.expr, word: bytes, choices: tuple[bytes, ...]) -> None:
        """Record the operator between two operands; the gap may hold parentheses and blanks, but no comment."""
        gap = Span(self._end(left), self._start(right))
        between = self._data[gap.start : gap.end]
        at = between.find(word)
        if choices and at >= 0 and b"#" not in between and self._is_allowed(gap):
            start = gap.start + at
            self.operators.append(Operator(Span(start, start + len(word)), choices))

    def _display(self, node: ast.expr) -> None:
        elements: list[ast.expr] = getattr(node, "elts", [])
        written = isinstance(getattr(node, "ctx", None), _WRITTEN)
        if len(elements) > 1 and not written and not any(isinstance(element, ast.Starred) for element in elements):
            self.elements.append(tuple(self._span(element) for element in elements))

    def _statement(self, node: ast.stmt, body: int, *, alone: bool) -> None:
        """Record a statement that shares its lines with a comment at most."""
        first, last = self._starts[node.lineno - 1], node.end_lineno or node.lineno
        end = self._starts[last] if last < len(self._starts) else len(self._data)
        margin = self._data[first : self._start(node)]
        rest = self._data[self._end(node) : end].strip()
        lines = Span(first, end)
        if not margin.strip() and (not rest or rest.startswith(b"#")) and self._is_allowed(lines):
            self.statements.append(Statement(lines, margin, body, alone))

    def _inner(self, scope: Scope) -> Scope:
        self._scopes += 1
        return (*scope, self._scopes)

    def _is_allowed(self, span: Span) -> bool:
        start, end = span
        return any(low <= start and end <= high for low, high in self._regions)

    def _span(self, node: ast.expr | ast.stmt) -> Span:
        return Span(self._start(node), self._end(node))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def _number(node: ast.expr) -> int | float | None:
    if isinstance(node, ast.Constant):
        value = node.value
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = _number(node.operand)
        return None if value is None else -value
    return None


def _parts(node: ast.expr) -> tuple[ast.expr, ...]:
    match node:
        case ast.BinOp(left=left, right=right):
            return (left, right)
        case ast.UnaryOp(operand=operand):
            return (operand,)
        case ast.BoolOp(values=values):
            return tuple(values)
        case ast.IfExp(body=body, orelse=orelse):
            return (body, orelse)
        case ast.Call(args=[ast.expr() as only], keywords=[]) if not isinstance(only, ast.Starred | ast.GeneratorExp):
            return (only,)
        case _:
            return ()
