"""The probe object of a batch stays while the batch runs, whatever a sweep removes, and goes with it."""

from __future__ import annotations

import time

import pytest

from wtb.application.batches import probe_object as probes
from wtb.application.batches.probe_object import check_probe, probe_object
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.testing.fakes import FakeClock


def test_a_probe_that_a_sweep_removed_during_a_long_batch_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_AGAIN_S", 0.001)
    objects = MemoryObjectStore(FakeClock())
    with probe_object(objects, "attempt") as probe:
        objects.delete(bytes.fromhex(probe))
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                check_probe(objects, probe, "attempt", "host")
                break
            except InvalidInput:
                time.sleep(0.001)
        check_probe(objects, probe, "attempt", "host")
    with pytest.raises(InvalidInput, match="a worker on host cannot read the files of this batch"):
        check_probe(objects, probe, "attempt", "host")
