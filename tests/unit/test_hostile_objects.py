"""Objects that misbehave: looking at them runs none of their code, never ends a plan, and gives the same each time."""

from __future__ import annotations

import builtins
import importlib
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wtb.application.dependencies.walk import fingerprint

PROGRAMS = {
    "getattr raises": """
class A:
    def __getattr__(self, name): touch('getattr '+name); raise RuntimeError('no')
a = A()
def node(s): return a.x
""",
    "getattribute lies": """
class A:
    def __getattribute__(self, name): touch('getattribute '+name); return A
a = A()
def node(s): return a.x
""",
    "class lies": """
class A:
    @property
    def __class__(self): touch('class'); return dict
a = A()
def node(s): return a
""",
    "class raises": """
class A:
    @property
    def __class__(self): touch('class'); raise RuntimeError('no')
a = A()
def node(s): return a
""",
    "eq hash repr": """
class A:
    def __eq__(self, o): touch('eq'); raise RuntimeError
    def __hash__(self): touch('hash'); raise RuntimeError
    def __repr__(self): touch('repr'); raise RuntimeError
    def __bool__(self): touch('bool'); raise RuntimeError
    def __len__(self): touch('len'); raise RuntimeError
    def __iter__(self): touch('iter'); raise RuntimeError
a = A()
b = {'x': a, 'y': [a, (a,)]}
def node(s, d=a): return a, b
""",
    "property raises": """
class A:
    @property
    def x(self): touch('x'); raise RuntimeError
a = A()
def node(s): return a.x
""",
    "meta hostile": """
class M(type):
    def __getattribute__(cls, name):
        touch('meta '+name); return super().__getattribute__(name)
    def __instancecheck__(cls, o): touch('instancecheck'); raise RuntimeError
    def __subclasscheck__(cls, o): touch('subclasscheck'); raise RuntimeError
    def __eq__(cls, o): touch('meta eq'); return False
    def __hash__(cls): touch('meta hash'); return 1
class A(metaclass=M): pass
a = A()
def node(s): return a, A
""",
    "list subclass iter": """
class L(list):
    def __iter__(self): touch('iter'); raise RuntimeError
    def __len__(self): touch('len'); raise RuntimeError
class D(dict):
    def items(self): touch('items'); raise RuntimeError
    def __iter__(self): touch('diter'); raise RuntimeError
    def keys(self): touch('keys'); raise RuntimeError
l = L([1]); d = D(a=1)
class S(str):
    def __repr__(self): touch('srepr'); raise RuntimeError
    def encode(self, *a): touch('enc'); raise RuntimeError
class I(int):
    def __repr__(self): touch('irepr'); raise RuntimeError
s_ = S('x'); i = I(3)
def node(s): return l, d, s_, i
""",
    "weakrefs": """
import weakref
class A: pass
a = A()
w = weakref.ref(a)
wd = weakref.WeakValueDictionary({'a': a})
p = weakref.proxy(a)
a.w = w
def node(s): return w, wd, p
""",
    "dead proxy": """
import weakref
class A: pass
a = A(); p = weakref.proxy(a); del a
def node(s): return p
""",
    "ctypes": """
import ctypes
lib = ctypes.CDLL(None)
class P(ctypes.Structure):
    _fields_ = [('x', ctypes.c_int)]
p = P(3)
def node(s): return lib, p
""",
    "open file": """
f = open(__file__)
def node(s): return f.read()
""",
    "generators": """
def g():
    touch('g'); yield 1
gen = g()
it = iter([1,2,3]); m = map(str, [1]); z = zip([1],[2]); e = enumerate([1])
async def c(): pass
async def ag(): yield 1
agen = ag()
def node(s): return gen, it, m, z, e, agen
""",
    "deep": """
deep = []
for _ in range(20_000): deep = [deep]
def node(s): return deep
""",
    "deep objects": """
class N:
    def __init__(self, n): self.next = n
n = None
for _ in range(5_000): n = N(n)
def node(s): return n
""",
    "asyncio": """
import asyncio, threading, queue, concurrent.futures as cf
loop = asyncio.new_event_loop()
lock = asyncio.Lock()
q = queue.Queue()
pool = cf.ThreadPoolExecutor(1)
tl = threading.local()
tl.x = 1
cond = threading.Condition()
sem = threading.Semaphore(2)
th = threading.Thread(target=print)
def node(s): return loop, lock, q, pool, tl, cond, sem, th
loop.close()
""",
    "recursive types": """
from typing import Union, List, Dict, Optional, TypedDict, Literal, Annotated
import typing
J = Union[str, List['J'], Dict[str, 'J']]
class T(TypedDict, total=False):
    a: Optional[int]
    b: Annotated[str, lambda x: 1]
P = typing.ParamSpec('P'); TV = typing.TypeVar('TV')
def node(s: T) -> Optional[J]: return J, T, P, TV, Literal['a']
""",
    "annotation hostile": """
class A:
    def __str__(self): touch('str'); raise RuntimeError
    __repr__ = __str__
def node(s: A()) -> A(): return 1
""",
    "fake module": """
import sys, types
m = types.ModuleType('made_up'); m.x = 1
sys.modules['made_up'] = m
class Lazy(types.ModuleType):
    def __getattr__(self, name): touch('lazy '+name); raise RuntimeError
lazy = Lazy('lazy_mod')
import made_up
def node(s): return made_up.x, lazy.y
""",
    "mock": """
from unittest import mock
client = mock.MagicMock(); client.chat.create.return_value = 'a'
def node(s): return client.chat.create('x')
""",
    "openai like": """
class Completions:
    def __init__(self, client): self._client = client
    def create(self, **kw): return self._client.post(kw)
class Client:
    def __init__(self, api_key=None, base_url='x'):
        import threading, socket
        self.api_key = api_key; self.base_url = base_url; self._lock = threading.RLock()
        self._s = socket.socket(); self._s.close()
        self.completions = Completions(self)
    def post(self, kw): return kw
    def __getattr__(self, n): raise AttributeError(n)
client = Client('sk-xxx')
def node(s): return client.completions.create(a=1)
""",
    "dict mutating": """
import collections
dd = collections.defaultdict(lambda: [1])
oc = collections.OrderedDict(a=1)
cn = collections.Counter('aab')
ud = collections.UserDict(a=1)
def node(s): return dd['x'], oc, cn, ud
""",
    "no module": """
exec('def f(q):\\n    return q', ns := {'__name__': None})
f = ns['f']
def node(s): return f(1)
""",
    "module name weird": """
class A: pass
A.__module__ = None
A.__qualname__ = 'x`y in z'
a = A()
def f(): pass
f.__module__ = 42
def node(s): return a, f()
""",
    "class module prop": """
class A:
    __module__ = property(lambda self: 'x')
a = A()
def node(s): return a
""",
    "slots dict desc": """
class A:
    __slots__ = ('x', '__dict__')
a = A(); a.y = 1
class B:
    @property
    def __dict__(self): touch('dict'); raise RuntimeError
b = B()
def node(s): return a, b
""",
    "wtb fp raises": """
class A:
    def __wtb_fingerprint__(self): raise RuntimeError('boom')
a = A()
def node(s): return a
""",
    "np object": """
import numpy as np
class Own:
    def m(self): return 1
arr = np.array([Own(), 'x'], dtype=object)
rng = np.random.default_rng(3)
f32 = np.float32(3.5)
ma = np.ma.array([1,2], mask=[0,1])
st = np.zeros(2, dtype=[('a', 'i4')])
def node(s): return arr, rng, f32, ma, st
""",
    "array lies": """
class A:
    dtype = 'x'; shape = (1,)
    def tobytes(self): touch('tobytes'); raise RuntimeError
a = A()
import types
def node(s): return a
""",
    "wrapped lies": """
class A:
    def __getattr__(self, n):
        if n == '__wrapped__': touch('wrapped')
        raise AttributeError(n)
a = A()
def node(s): return a
""",
    "wrapped cycle": """
import functools
def f(): pass
f.__wrapped__ = f
def node(s): return f()
node.__wrapped__ = node
""",
    "signature": """
class Node:
    def __call__(self, state): return {}
    def __getattr__(self, n): touch('nodeattr '+n); raise RuntimeError(n)
node = Node()
""",
    "partialmethod": """
import functools
class A:
    def m(self, x): return x
    n = functools.partialmethod(m, 3)
    @functools.singledispatchmethod
    def sd(self, x): return 1
    @sd.register
    def _(self, x: str): return 2
a = A()
def node(s): return a.n(), a.sd('x')
""",
    "contextmanager": """
import contextlib
@contextlib.contextmanager
def cm():
    yield 1
es = contextlib.ExitStack()
def node(s):
    with cm() as x: return x
""",
    "exceptions": """
class E(Exception):
    def __init__(self, m): super().__init__(m); self.m = m
err = E('a'); base = ValueError('x')
def node(s): raise err from base
""",
    "types": """
import types, typing, operator, itertools, functools
ns = types.SimpleNamespace(a=[1])
mp = types.MappingProxyType({'a': 1})
ig = operator.itemgetter('a')
mc = operator.methodcaller('x')
c = itertools.count(3)
cyc = itertools.cycle([1])
tp = typing.NamedTuple('tp', [('a', int)])
cell = types.CellType(3); cmp = functools.cmp_to_key(lambda a, b: 0)
def node(s): return ns, mp, ig, mc, c, cyc, tp(1), cell, cmp
""",
    "sorted mixed keys": """
d = {1: 'a', 'b': 2, None: 3, (1,): 4}
class A: pass
a = A(); a.__dict__[3] = 'x'; a.__dict__['y'] = 1
def node(s): return d, a
""",
    "own class with type args": """
from typing import Generic, TypeVar
T = TypeVar('T')
class G(Generic[T]):
    def m(self): return 1
g = G[int]()
Alias = G[str]
def node(s): return g, Alias().m()
""",
    "sets of own": """
class K:
    def __init__(self, n): self.n = n
    def __hash__(self): return 1
    def __eq__(self, o): return self is o
ks = {K(1), K(2)}
dk = {K(1): 'a'}
def node(s): return ks, dk
""",
}
"""`touch` tells that code ran which nobody had called."""

TOUCHED: list[str] = []
vars(builtins)["touch"] = TOUCHED.append  # for good: classes live on, and others may ask them something


def node_of(name: str, program: str, folder: Path, patch: pytest.MonkeyPatch) -> object:
    module = f"hostile_{name.replace(' ', '_')}"
    (folder / f"{module}.py").write_text(program)
    patch.syspath_prepend(folder)
    return importlib.import_module(module).node


@pytest.mark.filterwarnings("ignore")  # open files, and coroutines that nobody awaits
@pytest.mark.parametrize("name", PROGRAMS)
def test_looking_at_anything_runs_no_code_and_gives_the_same_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(name, PROGRAMS[name], tmp_path, monkeypatch)
    TOUCHED.clear()
    found = fingerprint(node)
    assert TOUCHED == []
    assert fingerprint(node).parts == found.parts
    close_files(sys.modules[f"hostile_{name.replace(' ', '_')}"])


def close_files(module: ModuleType) -> None:
    """Close what a program opened: Python would warn of it when the tests end."""
    for value in vars(module).values():
        if issubclass(type(value), io.IOBase):
            value.close()


def test_a_value_that_holds_too_much_counts_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.application.dependencies.walk._MOST_VALUES", 100)
    program = "big = {str(i): [[i], i] for i in range(300)}\n\ndef node(state):\n    return big\n"
    found = fingerprint(node_of("big", program, tmp_path, monkeypatch))
    [coarse] = found.coarse
    assert coarse.startswith("a builtins.dict cannot be looked into: the code of ")


def test_one_of_a_million_plain_values_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "numbers = list(range(1_000_000))\nnumbers[5] = {}\n\ndef node(state):\n    return numbers\n"
    one, other = (node_of(f"million_{n}", program.format(n), tmp_path, monkeypatch) for n in (-1, -2))
    digests = [set(fingerprint(each).mutable_parts.values()) for each in (one, other)]
    assert len(digests[0]) == 1
    assert digests[0] != digests[1]
