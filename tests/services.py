"""Real services for tests and benchmarks: a throw-away Postgres, and PgBouncer in front of it.

Both are context managers that own a temporary folder and the process they start, and leave neither behind.
Start them from a thread that outlives them, such as the main one: when it dies, even by SIGKILL, they stop.
"""

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

HOST = "127.0.0.1"
SUPERUSER = "wtb"
# Short, because the path of a unix socket may hold 107 bytes, and open to the user that the services run as.
TEMPORARY = Path("/tmp")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02


class PostgresServer:
    """One Postgres of its own, on a free port of the loopback interface and on a unix socket.

    `fsync=False` is for tests that never look at what a crash of the machine leaves; a killed process loses
    nothing either way. `settings` are further server settings, such as {"max_connections": "300"}. `parent`
    is where the folder for the data is made; benchmarks choose a real disk, since /tmp may be memory.
    """

    def __init__(
        self, *, fsync: bool = True, settings: Mapping[str, str] | None = None, parent: Path = TEMPORARY
    ) -> None:
        self.port = 0
        self._settings = {
            "listen_addresses": HOST,
            "fsync": "on" if fsync else "off",
            # In the data folder instead of /dev/shm, where a killed server would leave them for good.
            "dynamic_shared_memory_type": "mmap",
            **(settings or {}),
        }
        self._parent = parent
        self._bin = find_postgres()
        self._folder: Path | None = None
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Holds `data` and `log`; exists inside `with` only."""
        if self._folder is None:
            raise RuntimeError("PostgresServer has no folder outside its `with` block.")
        return self._folder

    @property
    def pid(self) -> int:
        """The main process, which the whole server lives and dies with."""
        if self._process is None:
            raise RuntimeError("PostgresServer is not running.")
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        """Where to connect; stays the same over `kill()` and `start()`."""
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """The same database over the unix socket."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self._sockets}&port={self.port}"

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Create a database as a copy of `template`, which nobody may be connected to; return its url."""
        names = map(sql.Identifier, (name, template))
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and the connections that are still open to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def start(self) -> None:
        """Start the server, again after `stop()` or `kill()`, and return when it answers."""
        if self._process is not None:
            raise RuntimeError(f"Postgres is already running as process {self._process.pid}.")
        port_is_known = self.port != 0
        for _ in range(5):
            if not port_is_known:
                self.port = free_port()
            command = [f"{self._bin}/postgres", "-D", f"{self.folder}/data", *self._flags()]
            self._process = _spawn(command, self.folder, signal.SIGINT)
            if _wait_until(self._answers, process=self._process):
                return
            self._process = None
            # Someone else may have taken the free port in between; a port that clients already know is kept.
            if port_is_known or "could not bind" not in self._log():
                break
        raise RuntimeError(f"Postgres did not start. Its log ends:\n{self._log()[-2000:]}")

    def stop(self) -> None:
        """Stop the server in order: open transactions are rolled back, everything is written."""
        if self._process is not None:
            # SIGINT is Postgres' fast shutdown, SIGQUIT its immediate one.
            _stop(self._process, signal.SIGINT, signal.SIGQUIT)
            self._process = None

    def kill(self) -> None:
        """Kill the server and its children with SIGKILL, as a crash would; return when all are gone."""
        # Halted first, so that no child is born between listing them and the end.
        os.kill(self.pid, signal.SIGSTOP)
        _wait_until(lambda: _state(self.pid) in "TZX", timeout_s=STOP_TIMEOUT_S)
        children = _children(self.pid)
        for pid in (self.pid, *children):
            _send(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None
        # Postgres refuses to start while a child of its former life still holds the shared memory.
        if not _wait_until(lambda: all(_state(child) in "ZX" for child in children), timeout_s=STOP_TIMEOUT_S):
            raise RuntimeError(f"Children of the killed Postgres are still there: {children}")

    def __enter__(self) -> Self:
        self._folder = _make_folder("wtb-pg-", self._parent)
        self._sockets = _make_folder("wtb-pg-socket-", TEMPORARY)
        try:
            self._initdb()
            self.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _initdb(self) -> None:
        # trust is what initdb writes for the socket and the loopback addresses only; nothing else is let in.
        command = [f"{self._bin}/initdb", "-D", f"{self.folder}/data", "-U", SUPERUSER, "--auth=trust"]
        command += ["--encoding=UTF8", "--no-locale", "--no-sync"]
        process = _spawn(command, self.folder, signal.SIGTERM)
        if process.wait() != 0:
            raise RuntimeError(f"initdb failed:\n{self._log()[-2000:]}")

    def _flags(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._sockets)}
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _answers(self) -> bool:
        # Over the socket, which is surely ours: on the port another server might answer while ours fails.
        command = [f"{self._bin}/pg_isready", "-q", "-h", f"{self._sockets}", "-p", str(self.port), "-t", "1"]
        return subprocess.run(command, check=False).returncode == 0

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _close(self) -> None:
        self.stop()
        for folder in filter(None, (self._folder, self._sockets)):
            shutil.rmtree(folder)
        self._folder = self._sockets = None


class PgBouncer:
    """PgBouncer in transaction mode before a running PostgresServer, for every database of it.

    The pool is small on purpose: clients then share connections, and what leaks between them is seen.
    """

    def __init__(self, server: PostgresServer, *, pool_size: int = 2) -> None:
        self.port = 0
        self._server = server
        self._pool_size = pool_size
        self._program = find_pgbouncer()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def restart(self) -> None:
        """Stop at once, dropping every connection, and start again on the same port."""
        assert self._process is not None
        assert self._folder is not None
        _stop(self._process, signal.SIGTERM, signal.SIGKILL)
        self._start(self._folder, port=self.port)

    def connections(self, database: str) -> tuple[int, int]:
        """Return how many clients are connected to a database, and how many connections to the server they share."""
        assert self._folder is not None
        url = f"postgresql://{self._folder.name}@{HOST}:{self.port}/pgbouncer"
        with psycopg.ClientCursor(psycopg.connect(url, autocommit=True)) as console, console.connection:
            clients, servers = (
                [row for row in console.execute(show).fetchall() if row[2] == database]
                for show in ("SHOW CLIENTS", "SHOW SERVERS")
            )
        return len(clients), len(servers)

    def url(self, database: str = "postgres") -> str:
        """Where to connect. psycopg needs `prepare_threshold=None`: statements do not follow a client."""
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def __enter__(self) -> Self:
        self._folder = _make_folder("wtb-pgb-", TEMPORARY)
        try:
            self._start(self._folder)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _start(self, folder: Path, port: int | None = None) -> None:
        for _ in range(5):
            self.port = port or free_port()
            (folder / "users").write_text(f'"{SUPERUSER}" ""\n"{folder.name}" ""\n')
            (folder / "ini").write_text(self._ini(folder))
            self._process = _spawn([f"{self._program}", f"{folder}/ini"], folder, signal.SIGTERM)
            if _wait_until(lambda: self._answers(folder.name), process=self._process):
                return
            self._process = None
        log = (folder / "log").read_text(errors="replace")
        raise RuntimeError(f"PgBouncer did not start. Its log ends:\n{log[-2000:]}")

    def _ini(self, folder: Path) -> str:
        return f"""\
[databases]
* = host={HOST} port={self._server.port}

[pgbouncer]
listen_addr = {HOST}
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
admin_users = {folder.name}
pool_mode = transaction
default_pool_size = {self._pool_size}
max_client_conn = 500
; so that a server which was killed and started again is tried again at once
server_login_retry = 0.1
"""

    def _answers(self, admin: str) -> bool:
        # On its console, so that being ready does not depend on the server behind; as a user that only ours
        # knows, since another PgBouncer might answer on the port while ours fails.
        url = f"postgresql://{admin}@{HOST}:{self.port}/pgbouncer"
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def _close(self) -> None:
        if self._process is not None:
            _stop(self._process, signal.SIGTERM, signal.SIGKILL)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None


def find_postgres() -> Path:
    """The folder with the programs of the newest Postgres installed, 13 or newer."""
    versions = [
        (int(folder.parent.name), folder)
        for folder in Path("/usr/lib/postgresql").glob("*/bin")
        if folder.parent.name.isdecimal() and (folder / "initdb").exists()
    ]
    # 13 brought DROP DATABASE … WITH (FORCE).
    if not versions or max(versions)[0] < 13:
        raise RuntimeError(_missing("Postgres 13 or newer", "postgresql"))
    return max(versions)[1]


def find_pgbouncer() -> Path:
    """The program, which Debian keeps off the PATH of ordinary users."""
    program = Path("/usr/sbin/pgbouncer")
    if not program.exists():
        raise RuntimeError(_missing("PgBouncer", "pgbouncer"))
    return program


def free_port() -> int:
    """A TCP port on which nobody listens right now.

    None of those that the system gives to connections: one of them might get it while a killed server is started again.
    """
    for port in random.Random().sample(range(10_000, 30_000), 1_000):  # not seeded with the tests
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise RuntimeError("No TCP port is free between 10000 and 30000.")


def _missing(what: str, package: str) -> str:
    return f"{what} is not installed: run `make test`, or as root `apt-get install {package}`."


def _account() -> pwd.struct_passwd | None:
    """Who runs the services. Both refuse to run as root; anyone else runs them as themselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _make_folder(prefix: str, parent: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    if account := _account():
        os.chown(folder, account.pw_uid, account.pw_gid)
    return folder


def _spawn(command: Sequence[str], folder: Path, orphaned: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a program in `folder`, which gets its log, out of reach of our terminal's signals."""
    account = _account()
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            # setpriv becomes the program, under the same pid; if we die, the kernel sends it `orphaned`.
            ["setpriv", "--pdeathsig", orphaned.name, "--", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


def _stop(process: subprocess.Popen[bytes], gently: signal.Signals, firmly: signal.Signals) -> None:
    process.send_signal(gently)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(firmly)
        process.wait(STOP_TIMEOUT_S)


def _wait_until(
    condition: Callable[[], bool],
    *,
    process: subprocess.Popen[bytes] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> bool:
    """Poll until `condition` holds. False when it never did; `process` has then ended or is killed."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process is not None and process.poll() is not None:
            return False
        if condition():
            return True
        time.sleep(POLL_S)
    if process is not None:
        process.kill()
        process.wait()
    return False


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _state(pid: int) -> str:
    """The kernel's letter: T is halted; Z (ended, not yet reaped) and X (gone) hold nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
