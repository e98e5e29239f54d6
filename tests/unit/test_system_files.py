"""Which files belong to the operating system, so that a batch need not notice their changes."""

from __future__ import annotations

import pytest

from wtb.infrastructure.observation import is_system_file


@pytest.mark.parametrize(
    "name",
    [
        "/usr/src/app/prompt.txt",
        "/usr/local/share/prompts/a.txt",
        "/etc/app/settings.toml",
        "/var/lib/models/weights.bin",
        "/run/secrets/key",
        "/dev/shm/project/prompt.txt",
        "/srv/app/proc/list.txt",
    ],
)
def test_a_file_of_the_user_is_noticed_wherever_it_lies(name: str) -> None:
    assert not is_system_file(name)


@pytest.mark.parametrize(
    "name", ["/proc/cpuinfo", "/sys/class/net", "/dev/urandom", "/usr/share/zoneinfo/UTC", "/etc/ssl/certs/ca.pem"]
)
def test_a_file_of_the_system_is_not(name: str) -> None:
    assert is_system_file(name)
