"""Sources: the source text of the user's modules, by statement; formatting and comments do not count.

Code counts this way if it cannot be inspected otherwise: an object such as a client or a socket that a module binds to
a name, and modules that are imported by a name computed at run time.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from wtb.application.dependencies.own_code import held_by, is_own_file, place


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement at the top of a module: what it binds, which names it mentions, and a digest of its code."""

    binds: frozenset[str]
    mentions: frozenset[str]
    imports: tuple[str, ...]
    digest: str
    is_definition: bool
    """Whether it only binds names: a function, a class or an assignment. Any other statement may have effects."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The statements of a module, read from its source."""

    path: str
    statements: tuple[Statement, ...]

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that it imports anywhere in its code."""
        return tuple(dict.fromkeys(name for each in self.statements for name in each.imports))


def source_file(path: str | Path) -> SourceFile | None:
    """Read a module; None if it does not exist or is not Python."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return _read(str(path), found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1_000)
def _read(path: str, changed_ns: int, size: int) -> SourceFile | None:
    """Read one version of a module, once."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    statements = [statement for statement in tree.body if not _is_script(statement)]
    return SourceFile(path, tuple(_statement(each) for each in statements))


def _is_script(statement: ast.stmt) -> bool:
    """Whether a statement is a bare text (a docstring) or `if __name__ == "__main__":`."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def _statement(statement: ast.stmt) -> Statement:
    nodes = list(ast.walk(statement))
    return Statement(
        binds=frozenset(_bound(statement)),
        mentions=frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        imports=tuple(_imported(nodes)),
        digest=hashlib.sha256(ast.dump(statement).encode()).hexdigest()[:16],
        is_definition=_only_binds(statement),
    )


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds at the top of its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _only_binds(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            yield f"{dots}{node.module or ''}"
            joint = "" if dots and not node.module else "."
            yield from (f"{dots}{node.module or ''}{joint}{alias.name}" for alias in node.names if alias.name != "*")


def relevant(source: SourceFile, names: frozenset[str], without: frozenset[str]) -> tuple[Statement, ...]:
    """Return the statements that these names may depend on; all statements if no name is given.

    `without` are names whose statements never count: the functions of nodes and variants, the workflow and the batch.
    A definition counts if something that counts mentions it. Every other statement counts, since it may do anything.
    """
    left = [each for each in source.statements if not _belongs_to(each, without)]
    if not names:
        return tuple(left)
    wanted = set(names).union(*(each.mentions for each in left if not each.is_definition))
    chosen = {id(each) for each in left if not each.is_definition}
    while more := [each for each in left if id(each) not in chosen and each.binds & wanted]:
        chosen |= {id(each) for each in more}
        wanted.update(*(each.mentions for each in more))
    return tuple(each for each in left if id(each) in chosen)


def binding(source: SourceFile, name: str, without: frozenset[str]) -> tuple[Statement, ...]:
    """Return the statements that make a name: those that bind it, use it, or bind names that these mention."""
    left = [each for each in source.statements if not _belongs_to(each, without)]
    chosen = [each for each in left if name in each.binds or (name in each.mentions and not each.is_definition)]
    wanted: set[str] = set().union(*(each.mentions for each in chosen))
    while more := [each for each in left if each not in chosen and each.binds & wanted]:
        chosen += more
        wanted.update(*(each.mentions for each in more))
    return tuple(each for each in left if each in chosen)


def imported_by(statements: Iterable[Statement], module: str, file: str) -> Iterator[str]:
    """Yield the full names of the imports in statements."""
    for statement in statements:
        for name in statement.imports:
            if (found := resolve(name, module, file)) is not None:
                yield found


def _belongs_to(statement: Statement, names: frozenset[str]) -> bool:
    """Whether a statement is only about these names: it binds one of them, or calls a method of one."""
    if statement.binds:
        return bool(statement.binds & names) and statement.binds <= names
    return bool(statement.mentions & names)


def closure_of(files: Mapping[str, str]) -> dict[str, str]:
    """Return these own modules and all own modules that they import, directly or indirectly: names to files."""
    found: dict[str, str] = {}
    waiting = list(files.items())
    while waiting:
        name, file = waiting.pop()
        if name in found:
            continue
        found[name] = file
        source = source_file(file)
        for imported in source.imports if source is not None else ():
            resolved = resolve(imported, name, file)
            own = None if resolved is None else own_file(resolved)
            if resolved is not None and own is not None:
                waiting.append((resolved, own))
    return found


def resolve(imported: str, module: str, file: str) -> str | None:
    """Return the full name of an import in a module; None if it leads above the module's package."""
    level = len(imported) - len(imported.lstrip("."))
    if not level:
        return imported
    parts = module.split(".")
    package = parts if Path(file).name == "__init__.py" else parts[:-1]
    if level - 1 > len(package):
        return None
    head = package[: len(package) - (level - 1)]
    return ".".join([*head, *([imported[level:]] if imported[level:] else [])]) or None


def own_file(module: str) -> str | None:
    """Return the file of a module if it is the user's own, without importing it."""
    loaded = sys.modules.get(module)
    file = held_by(loaded).get("__file__") if loaded is not None else _found(module)
    return None if file is None else own_path(file)


def own_path(file: str) -> str | None:
    """Return the real path of a module's file if it is the user's own."""
    return _own_path(file if file.startswith("/") else os.path.abspath(file))  # noqa: PTH100 - it follows no links


@functools.cache
def _own_path(file: str) -> str | None:
    return os.path.realpath(file) if file.endswith(".py") and is_own_file(file) else None


def _found(module: str) -> str | None:
    """Return where a module would be loaded from, without importing the packages around it."""
    package, _, last = module.rpartition(".")
    if not package:
        spec = _spec(module)
        return None if spec is None else spec.origin
    for folder in _folders(package):
        for file in (folder / f"{last}.py", folder / last / "__init__.py"):
            if file.is_file():
                return str(file)
    return None


def _folders(package: str) -> list[Path]:
    """Return the folders of a package's modules, even if it has no `__init__.py`."""
    loaded = sys.modules.get(package)
    if loaded is not None:
        return [Path(folder) for folder in getattr(loaded, "__path__", ())]
    parent, _, last = package.rpartition(".")
    if parent:
        return [folder / last for folder in _folders(parent) if (folder / last).is_dir()]
    spec = _spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def module_digest(path: str | Path) -> str | None:
    """Return a digest of all code of a module; None if it cannot be read."""
    source = source_file(path)
    if source is None:
        return None
    return hashlib.sha256("".join(each.digest for each in source.statements).encode()).hexdigest()[:16]


def label_of(statement: Statement, path: str) -> str:
    """Return the name of a statement in explanations."""
    if not statement.binds:
        return f"the code of {place(path)}"
    return f"{', '.join(f'`{name}`' for name in sorted(statement.binds))} in {place(path)}"
