"""SubprocessEnvironment: runs nodes in a process of this machine, with its own interpreter, variables and limits."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed
from wtb.domain.secrets import Secret
from wtb.infrastructure.environments.virtual_environments import interpreter_for
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.worker_process import how_it_ended, where_prints_go

PASSED = ("PATH", "HOME", "LANG")
"""The variables of this process that a node sees, besides those that its config declares."""

_OF_CONNECTION = frozenset({"address", "token", "certificate", "timeout_s", "resources"})
"""Options that another machine does not need."""

_BEGIN = """
import json, socket, sys
number, is_same, path = json.loads(sys.argv[1])
sys.path[:] = path if is_same else [*sys.path, *(each for each in path if each not in sys.path)]
try:
    from wtb.environment_process import main
except Exception as error:
    text = f"{sys.executable} (Python {sys.version.split()[0]}) cannot import WTB: {type(error).__name__}: {error}"
    socket.socket(fileno=number).send(json.dumps({"refused": text}).encode())
    sys.exit(1)
main(number)
"""
_LAST_WORDS_S = 10.0


class SubprocessEnvironment:
    """A guard process, and below it the process that runs nodes."""

    def __init__(self, config: EnvironmentConfig, home: Path) -> None:
        self._config = config
        self._home = home
        self._lock = threading.Lock()
        self._link: Channel | None = None
        self._ended_links: list[Channel] = []
        """Links of killed processes. Somebody may still read from one, so they are closed later."""
        python = interpreter_for(config, home)
        variables = variables_of(config)
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            try:
                self._guard = _started(python, there, config.working_folder, variables)
            except BaseException:
                self._control.close()
                raise
        self.name = f"{config.kind} {self._guard.pid} on {platform.node()}"
        try:
            _check_ready(self._answer(), python)
        except BaseException:
            self.close()
            raise

    def start(self) -> Channel:
        with self._lock:
            if self._link is None:
                self._close_ended_links()
                self._link = self._new_link()
            return self._link

    def _new_link(self) -> Channel:
        here, there = socket.socketpair()
        facts = {"memory_bytes": self._config.memory_bytes, "home": str(self._home)}
        with there:
            try:
                socket.send_fds(self._control, [json.dumps({"start": facts}).encode()], [there.fileno()])
            except OSError as error:
                raise self._gone() from error
        self._answer()
        return Channel(here, self.is_alive)

    def clean(self) -> None:
        with self._lock:
            self._said({"clean": True})

    def kill(self) -> str:
        with self._lock:
            self._retire_link()
            return str(self._said({"kill": True})["killed"])

    def end(self, link: Channel) -> None:
        """Kill the process behind a link, unless that has ended and another one has taken its place."""
        with self._lock:
            if self._link is link:
                self._retire_link()
                self._said({"kill": True})

    def is_alive(self) -> bool:
        return self._guard.poll() is None

    def close(self) -> None:
        with self._lock:
            self._control.close()  # then the guard ends everything
            self._retire_link()
            self._close_ended_links()
            try:
                self._guard.wait(_LAST_WORDS_S)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.wait()

    def _retire_link(self) -> None:
        if self._link is not None:
            self._ended_links.append(self._link)
            self._link = None

    def _close_ended_links(self) -> None:
        for link in self._ended_links:
            link.close()
        self._ended_links.clear()

    def _said(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self._control.send(json.dumps(message).encode())
        except OSError as error:
            raise self._gone() from error
        return self._answer()

    def _answer(self) -> Mapping[str, Any]:
        try:
            data = self._control.recv(65_536)
        except OSError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        found: Mapping[str, Any] = json.loads(data)
        return found

    def _gone(self) -> EnvironmentFailed:
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(_LAST_WORDS_S)
        how = how_it_ended(self._guard.poll() or 0)
        return EnvironmentFailed(f"the environment {self.name} {how}; its output says why")


def _started(
    python: str, there: socket.socket, folder: str | None, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    given = json.dumps([there.fileno(), python == sys.executable, [str(Path(each).absolute()) for each in sys.path]])
    try:
        return subprocess.Popen(
            [python, "-P", "-c", _BEGIN, given],
            stdin=subprocess.DEVNULL,
            stdout=where_prints_go(),
            pass_fds=[there.fileno()],
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        what = f"the working folder {folder}" if folder and not Path(folder).is_dir() else python
        raise EnvironmentFailed(f"an environment cannot be started: {what}: {error.strerror}") from error


def variables_of(config: EnvironmentConfig) -> dict[str, str]:
    """Return all variables of the process. Nothing else passes, so that no secret does by accident."""
    found = {name: os.environ[name] for name in PASSED if name in os.environ}
    for name, value in config.variables.items():
        if isinstance(value, Secret):
            found[name] = value.reveal()
        elif value is not None:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
        else:
            raise EnvironmentFailed(f"the environment needs the variable {name}, which is not set here; set it")
    return found


def remote_config_data(config: EnvironmentConfig) -> dict[str, Any]:
    """Return the config of a process on another machine as plain JSON, with the values of the variables."""
    data = {key: value for key, value in config.to_data().items() if key not in _OF_CONNECTION}
    found = variables_of(config)
    memory = {} if config.memory_limit_gb is None else {"memory_gb": config.memory_limit_gb}
    return {**data, **memory, "kind": "subprocess", "variables": {name: found[name] for name in config.variables}}


def _check_ready(said: Mapping[str, Any], python: str) -> None:
    if "refused" in said:
        raise EnvironmentFailed(
            f"{said['refused']}. Install workflow-test-bench there, or use an interpreter of version "
            f"{platform.python_version()}"
        )
    if said["wtb"] != (ours := version("workflow-test-bench")):
        raise EnvironmentFailed(f"{python} has WTB {said['wtb']}, and this process {ours}; install the same version")
