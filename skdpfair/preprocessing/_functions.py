"""Whether a function works on each row alone, as far as its bytecode tells."""

import builtins
import dis
import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np

from skdpfair.preprocessing._calls import (
    NOTHING,
    OF_ALL_ROWS,
    TAKES_FUNCTION,
    TURNED,
    UNKNOWN,
    Value,
    along_rows,
    axis_within,
    let_off,
    names_a_reader,
)

_LIBRARIES = {"numpy", "pandas", "scipy", "sklearn", "builtins"}
_CLOSED = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD"}
_IDLE = {"RESUME", "NOP", "EXTENDED_ARG", "PRECALL", "CACHE", "COPY_FREE_VARS", "MAKE_CELL"}
_LISTS = {"BUILD_LIST", "BUILD_TUPLE", "LIST_EXTEND", "LIST_APPEND"}


def plain_function(function):
    """Return the function within a partial."""
    while isinstance(function, partial):
        function = function.func
    return function


def reads_all_rows(function, given=None) -> bool:
    """Tell whether a function is known to, or calls what does, other than within each row.

    Parameters
    ----------
    function : callable
        A function, a partial, or an object that can be called.
    given : dict, optional
        Keywords that it is called with.

    Notes
    -----
    Names of functions and methods are compared with a list, and each call is let off that is seen
    to go along axis 1.  Functions within, and functions of the user's that it calls, are looked
    into as well; those of libraries are judged by their names.

    Examples
    --------
    >>> reads_all_rows(lambda X: X - X.mean(axis=0))
    True
    >>> reads_all_rows(lambda X: X - X.mean(axis=1, keepdims=True))
    False
    """
    return _leaks(function, given if isinstance(given, Mapping) else {}, {})


def _leaks(function, given, seen):
    """Tell whether a callable reads all rows; ``seen`` holds the answers, False to begin with."""
    while isinstance(function, partial):
        if any(callable(part) and _leaks(part, {}, seen) for part in function.args):
            return True
        function, given = function.func, {**function.keywords, **given}
    if isinstance(function, np.ufunc) or not callable(function):
        return False
    if id(function) not in seen:
        seen[id(function)] = False
        seen[id(function)] = _found(function, given, seen)
    return seen[id(function)]


def _found(function, given, seen):
    held = given.values()
    if any(_within_python(part) and _leaks(part, {}, seen) for part in held if callable(part)):
        return True
    if not _within_python(function):
        return _by_name(function, given)
    owner = getattr(function, "__self__", None)
    if not isinstance(function, (FunctionType, MethodType)):
        owner, function = function, getattr(function, "__wrapped__", type(function).__call__)
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, FunctionType):
        return _within_python(plain) and _leaks(plain, {}, seen)
    return bool(_Reading(plain, owner, seen).leaks)


def _within_python(function):
    """Tell whether a callable is the user's, so that what it does is to be looked at."""
    if isinstance(function, (partial, type)):
        return isinstance(function, partial)
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, FunctionType):
        plain = getattr(function, "__wrapped__", type(function).__call__)
    root = (getattr(plain, "__module__", None) or "").partition(".")[0]
    library = root in _LIBRARIES or root in sys.stdlib_module_names - {"__main__"}
    code = getattr(plain, "__code__", None)
    return code is not None and not library and "site-packages" not in code.co_filename


def _by_name(function, given):
    name = getattr(function, "__name__", "")
    if name == "cut":
        return isinstance(given.get("bins", 1), int)
    if name == "normalize":
        return not along_rows(given.get("axis", 1))
    return name in OF_ALL_ROWS and not along_rows(given.get("axis", given.get("dim")))


class _Reading:
    """Goes through a function's code with a stack of what is known, and lists what reads all rows.

    A call is let off only if the stack shows that it stays within the rows: where the stack is not
    understood, what was named remains.
    """

    def __init__(self, function, owner, seen):
        self.globals, self.seen, self.leaks, self.next = function.__globals__, seen, set(), 0
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        self.outer = {name: _content(cell) for name, cell in cells}
        self.read(function.__code__, owner)

    def read(self, code, owner=None):
        self.stack, self.names, self.saved, self.keywords = [], {}, {}, ()
        self.constants = code.co_consts
        if owner is not None and code.co_argcount:
            self.names[code.co_varnames[0]] = Value(owner, ("self",))
        try:
            self.walk(code)
        except (AttributeError, IndexError, TypeError, ValueError):  # bytecode of another Python
            if not OF_ALL_ROWS.isdisjoint(code.co_names):
                self.leak()

    def walk(self, code):
        over = False
        for step in dis.get_instructions(code):
            came = self.saved.get(step.offset)
            if over:
                self.stack = list(came or ())
            elif came is not None:
                self.stack = _merged(self.stack, came)
            over = step.opname in _CLOSED or step.opname.startswith("JUMP_BACKWARD")
            if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
                left = len(self.stack) + min(0, dis.stack_effect(step.opcode, step.arg, jump=True))
                left = self.stack[: max(0, left)]
                self.saved[step.argval] = _merged(left, self.saved.get(step.argval, left))
            if step.opname not in _IDLE:
                self.take(step)

    def take(self, step):
        name, kind = step.argval, step.opname
        if kind in {"LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"}:
            self.push(self.function(name) if isinstance(name, CodeType) else Value(name))
        elif kind.startswith("LOAD_FAST"):
            for local in name if isinstance(name, tuple) else (name,):
                self.push(self.names.get(local, NOTHING))
        elif kind == "LOAD_GLOBAL":
            held = self.globals.get(name, getattr(builtins, name, UNKNOWN))
            self.push(self.named(Value(held, (name,))), self.effect(step))
        elif kind in {"LOAD_DEREF", "LOAD_CLASSDEREF"}:
            held = self.outer.get(name, UNKNOWN)
            self.push(self.named(Value(held, (name,))) if name in self.outer else NOTHING)
        elif kind in {"LOAD_ATTR", "LOAD_METHOD"}:
            effect, of = self.effect(step), self.pop()
            held = _attribute(of.known, name)
            value = Value(held, (*of.chain, name), made=of.made)
            self.push(self.named(value), 1 + effect)
        elif kind == "KW_NAMES":
            self.keywords = self.constants[step.arg]  # dis of 3.11 does not show them
        elif kind in {"CALL", "CALL_KW"}:
            self.call(step)
        elif kind == "STORE_FAST":
            self.names[name] = replace(self.pop(), known=UNKNOWN)
        else:
            self.other(step)

    def other(self, step):
        kind, effect = step.opname, self.effect(step)
        if kind == "MAKE_FUNCTION":
            top = self.pop()
            self.pop(-effect)
            self.push(top)
        elif kind == "SET_FUNCTION_ATTRIBUTE":
            top = self.pop()
            self.pop()
            self.push(top)
        elif kind == "SWAP" and step.arg <= len(self.stack):
            stack = self.stack
            stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]
        elif kind in {"POP_TOP", "STORE_GLOBAL", "STORE_DEREF"} or kind.startswith("POP_JUMP"):
            self.pop()
        elif effect > 0:
            self.push(Value(made=kind in _LISTS), effect)
        else:
            self.pop(1 - effect)
            self.push(Value(made=kind in _LISTS))

    def call(self, step):
        if step.opname == "CALL_KW":
            self.keywords = self.pop().known
        args = [self.pop() for _ in range(step.arg)][::-1]
        slots, keywords, self.keywords = [self.pop(), self.pop()], self.keywords, ()
        callee = next((s for s in slots if s.chain or s.leak is not None), NOTHING)
        split = len(args) - len(keywords)
        given, args = dict(zip(keywords, args[split:], strict=True)), args[:split]
        if let_off(callee, args, given):
            self.leaks.discard(callee.leak)
        elif names_a_reader(callee, args, given):
            self.leak()
        if callee.name in TAKES_FUNCTION and axis_within(callee, args, given):
            self.leaks -= {value.leak for value in (callee, *args, *given.values())}
        self.push(Value(chain=("T",) if callee.name in TURNED else (), made=True))

    def named(self, value):
        """Return a value with its leak, if its name or what it stands for reads all rows."""
        held, chain = value.known, value.chain
        if held is not UNKNOWN and (isinstance(held, ModuleType) or not callable(held)):
            return value
        if held is not UNKNOWN and _within_python(held):
            found = _leaks(held, {}, self.seen)
        else:
            own = getattr(held, "__name__", "") if held is not UNKNOWN else ""
            found = not OF_ALL_ROWS.isdisjoint({value.name, own})
            found = found and chain[-2:-1] not in {("str",), ("dt",)}
        return replace(value, leak=self.leak()) if found else value

    def function(self, code):
        """Return a function within the function, which is looked into by itself."""
        inner = object.__new__(_Reading)
        inner.globals, inner.seen, inner.outer = self.globals, self.seen, self.outer
        inner.leaks, inner.next = set(), 0
        inner.read(code)
        return Value(leak=self.leak() if inner.leaks else None)

    def leak(self):
        self.next += 1
        self.leaks.add(self.next)
        return self.next

    def effect(self, step):
        return dis.stack_effect(step.opcode, step.arg, jump=False)

    def push(self, value, times=1):
        self.stack += [value] * times

    def pop(self, times=1):
        value = NOTHING
        for _ in range(times):
            value = self.stack.pop() if self.stack else NOTHING
        return value


def _merged(one, other):
    """Return what holds of the stack whichever way was taken."""
    return [
        a if a.known is b.known else replace(a, known=UNKNOWN, made=a.made and b.made)
        for a, b in zip(one, other, strict=False)
    ]


def _attribute(held, name):
    """Return an attribute without running any code, if it is there."""
    if held is UNKNOWN:
        return UNKNOWN
    found = inspect.getattr_static(held, name, UNKNOWN)
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return UNKNOWN
