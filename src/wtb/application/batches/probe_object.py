"""The probe object: it shows whether a worker reads the files of the process that runs the batch.

Workers may be on other machines. A folder there can have the same path and be another folder. So the process that runs
the batch stores an object that nobody else has, and each worker reads it before its first job.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from wtb.domain.errors import InvalidInput, ObjectNotFound, WTBError
from wtb.domain.ports import ObjectStore

_AGAIN_S = 60.0


@contextmanager
def probe_object(objects: ObjectStore, attempt_id: str) -> Iterator[str]:
    """Store a probe for the length of a block; the block gets its digest."""
    digest = objects.put(io.BytesIO(_content(attempt_id))).digest
    objects.sync()
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(objects, attempt_id, ended), name="wtb-probe", daemon=True)
    keeper.start()
    try:
        yield digest.hex()
    finally:
        ended.set()
        keeper.join()
        with suppress(WTBError):  # a sweep removes it later
            objects.delete(digest)


def _keep(objects: ObjectStore, attempt_id: str, ended: threading.Event) -> None:
    """Put the probe again now and then: nothing refers to it, so a sweep would remove it during a long batch."""
    while not ended.wait(_AGAIN_S):
        with suppress(WTBError):
            objects.put(io.BytesIO(_content(attempt_id)))
            objects.sync()


def check_probe(objects: ObjectStore, digest: str, attempt_id: str, host: str) -> None:
    """Raise InvalidInput if this process does not read the objects of the one that runs the batch."""
    try:
        with objects.open(bytes.fromhex(digest)) as stream:
            if stream.read() == _content(attempt_id):
                return
    except ObjectNotFound as error:
        problem = str(error)
    else:
        problem = f"object {digest} has another content"
    raise InvalidInput(
        f"a worker on {host} cannot read the files of this batch: {problem}. Store files where every machine reads "
        'them: set `objects` to "database" or to an address such as s3://bucket/prefix, or mount the same folder on '
        "every machine and name it with `objects` (folder:///path)"
    )


def _content(attempt_id: str) -> bytes:
    return f"wtb probe {attempt_id}\n".encode()
