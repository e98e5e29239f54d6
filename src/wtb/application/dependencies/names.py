"""Uses: finds in a function's bytecode the globals, attributes, imports and dynamic names that it looks up."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_DYNAMIC = {
    ("eval",): "eval",
    ("exec",): "exec",
    ("globals",): "globals()",
    ("__import__",): "__import__",
    ("importlib",): "importlib",
    ("importlib", "import_module"): "importlib",
    ("import_module",): "importlib",
    ("sys", "modules"): "sys.modules",
    ("pkgutil",): "pkgutil",
    ("runpy",): "runpy",
    ("operator", "attrgetter"): "attrgetter",
    ("attrgetter",): "attrgetter",
}
"""The beginnings of look-ups that cannot be followed by reading the code."""


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """An import inside a function: the module's name, and the number of dots before it."""

    name: str
    level: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Uses:
    """The names that a function and its inner functions look up.

    `chains` are globals, each with the attributes that are looked up on it at once: `prompts.KIND` is ("prompts",
    "KIND"). `dynamic` names look-ups that cannot be followed, such as `getattr` with a computed name.
    """

    chains: tuple[tuple[str, ...], ...]
    imports: tuple[Import, ...]
    dynamic: tuple[str, ...]


@functools.lru_cache(maxsize=10_000)
def uses_of(code: CodeType) -> Uses:
    """Return the names that a function looks up."""
    chains: set[tuple[str, ...]] = set()
    imports: set[Import] = set()
    dynamic: set[str] = set()
    for each in _with_inner(code):
        instructions = list(dis.get_instructions(each))
        found = set(_chains(instructions))
        chains |= found
        imports |= set(_imports(instructions))
        dynamic |= {_DYNAMIC[start] for chain in found for start in (chain[:1], chain[:2]) if start in _DYNAMIC}
        if any(not _is_constant(instructions, at) for at in _calls_of(instructions, "getattr")):
            dynamic.add("getattr with a computed name")
    dynamic |= {"importlib" for each in imports if each.name.partition(".")[0] == "importlib"}
    return Uses(chains=tuple(sorted(chains)), imports=tuple(sorted(imports)), dynamic=tuple(sorted(dynamic)))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def inner_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of its inner functions."""
    return _with_inner(code)


def _chains(instructions: Sequence[dis.Instruction]) -> Iterator[tuple[str, ...]]:
    for index, instruction in enumerate(instructions):
        if instruction.opname in _GLOBALS:
            chain = [str(instruction.argval)]
            for following in instructions[index + 1 :]:
                if following.opname not in _ATTRIBUTES:
                    break
                chain.append(str(following.argval))
            yield tuple(chain)


def _imports(instructions: Sequence[dis.Instruction]) -> Iterator[Import]:
    for index, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, names = (instructions[index - 2].argval, instructions[index - 1].argval)
            yield Import(str(instruction.argval), int(level or 0), tuple(names or ()))


def _calls_of(instructions: Sequence[dis.Instruction], name: str) -> Iterator[int]:
    for index, instruction in enumerate(instructions):
        if instruction.opname in _GLOBALS and instruction.argval == name:
            yield index


def _is_constant(instructions: Sequence[dis.Instruction], at: int) -> bool:
    """Whether the second argument of the call that begins at `at` is a constant text; False if that is unclear."""
    depth = 0
    begins: dict[int, int] = {}
    for index in range(at + 1, len(instructions)):
        here = instructions[index]
        if here.opname in ("PRECALL", "CALL") and here.arg == depth:
            second = instructions[begins[1] : begins[2] if depth > 2 else index] if depth > 1 else ()
            return len(second) == 1 and second[0].opname == "LOAD_CONST" and isinstance(second[0].argval, str)
        begins[depth] = index  # the last instruction at which this many arguments were complete
        depth += dis.stack_effect(here.opcode, here.arg, jump=False)
    return False
