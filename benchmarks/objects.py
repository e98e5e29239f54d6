"""Object stores against the folder, in one run: many small files, one large one, and the memory that it takes.

All take turns with the same contents and flush what they store: the folder and SQLite at FULL, Postgres with fsync. S3
is moto's server on this machine, which is written in Python and keeps everything in memory. It shows how much WTB adds
to a request; it says nothing about S3.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, measure, timed
from tests.s3_server import S3Server
from tests.services import PostgresServer
from wtb.bootstrap import Services, bootstrap
from wtb.domain.ports import ObjectStore
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

FILES, FILE_BYTES, LARGE_BYTES = 1_000, 10_000, 64_000_000
ROUNDS = 3
CHUNK_BYTES = 1 << 20
FOLDER = "folder"


@contextmanager
def places() -> Iterator[dict[str, Settings]]:
    """Yield the settings of each store, with the services that they need."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wtb-bench-", dir="/var/tmp")))
        server = stack.enter_context(PostgresServer(parent=Path("/var/tmp")))
        s3 = stack.enter_context(S3Server())
        os.environ.update(s3.variables)
        url = server.create_database("objects")
        database = open_database(Settings(url=url))
        schema.upgrade(database)
        database.close()
        flushed = partial(Settings, sqlite_synchronous="FULL")
        yield {
            FOLDER: flushed(folder=home / "a"),
            "SQLite": flushed(folder=home / "b", objects="database"),
            "Postgres": flushed(folder=home / "c", url=url, objects="database"),
            "S3 (moto)": flushed(folder=home / "d", objects=f"s3://{s3.create_bucket()}/wtb"),
        }


def put(objects: ObjectStore, contents: list[bytes]) -> list[bytes]:
    """Put contents as a snapshot does, and return their digests."""
    digests = [objects.put(BytesIO(content)).digest for content in contents]
    objects.sync()
    return digests


def read(objects: ObjectStore, digests: list[bytes]) -> None:
    """Read and verify whole objects, a piece at a time, as a restore does."""
    for digest in digests:
        found = hashlib.sha256()
        with objects.open(digest) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                found.update(chunk)
        assert found.digest() == digest


def compared(name: str, count: int, size: int, stores: dict[str, Services]) -> Iterator[Figure]:
    """Measure putting new contents, putting them again, and reading them, of all stores turn by turn."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(ROUNDS):
        for store in list(stores)[number % 2 * -1 :] + list(stores)[: number % 2 * -1]:
            objects, contents = stores[store].objects, [os.urandom(size) for _ in range(count)]
            digests: list[bytes] = []
            times.setdefault(("write", store), []).append(timed(lambda: digests.extend(put(objects, contents))))  # noqa: B023
            times.setdefault(("write again", store), []).append(timed(put, objects, contents))
            times.setdefault(("read", store), []).append(timed(read, objects, digests))
    for what in ("write", "write again", "read"):
        base = median(times[what, FOLDER])
        for store in stores:
            if store != FOLDER:
                took = median(times[what, store])
                yield Figure(
                    name=f"{what} {name}, {store}",
                    value=took / base,
                    unit="× folder",
                    detail=f"{took * 1e3:,.0f} / {base * 1e3:,.0f} ms",
                    raw={"ms": took * 1e3, "folder_ms": base * 1e3},
                )


def memory(settings: dict[str, Settings]) -> Iterator[Figure]:
    """Measure how much the process grows when it stores and reads the large file."""
    for store, each in settings.items():
        given = each.model_dump_json(include={"folder", "url", "objects"})
        command = [sys.executable, "-m", "benchmarks.objects", given]
        value = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        yield Figure(name=f"memory for a file of 64 MB, {store}", value=value, unit="MB", bar=48)


def grown(settings: Settings) -> float:
    """Store and read a large file, and return by how many MB this process grew at most."""
    with bootstrap(settings) as services, tempfile.TemporaryFile(dir="/var/tmp", buffering=0) as file:
        put(services.objects, [b"everything is loaded and connected"])
        for _ in range(LARGE_BYTES // 1_000_000):
            file.write(os.urandom(1_000_000))
        file.seek(0)
        before_mb = most_memory_mb()
        digest = services.objects.put(file).digest
        services.objects.sync()
        read(services.objects, [digest])
        return most_memory_mb() - before_mb


def most_memory_mb() -> float:
    """Return the most memory that this process has had; getrusage would count the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def figures() -> list[Figure]:
    """Measure everything."""
    with places() as settings, ExitStack() as stack:
        stores = {name: stack.enter_context(bootstrap(each)) for name, each in settings.items()}
        for services in stores.values():
            read(services.objects, put(services.objects, [os.urandom(10_000), os.urandom(5_000_000)]))
        return [
            *compared(f"{FILES:,} files of 10 kB", FILES, FILE_BYTES, stores),
            *compared("a file of 64 MB", 1, LARGE_BYTES, stores),
            *memory(settings),
        ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(grown(Settings.model_validate_json(sys.argv[1])))
    else:
        measure("Object stores", Path("build/benchmarks/objects.json"), [("objects", figures)])
