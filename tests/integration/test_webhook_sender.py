"""Requests to webhooks: where they never go, and receivers that fail, hang, redirect or say too much."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.webhook_receiver import Handler, Received, WebhookReceiver
from wtb.infrastructure.webhook_sender import PinnedSender


def post(sender: PinnedSender, url: str) -> tuple[int | None, str]:
    sent = sender.send(url, {"content-type": "application/json"}, b"{}")
    return sent.status, sent.problem or ""


class Names:
    """A resolver that leads to the next of the given addresses at each look."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.looks = 0

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.looks += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0/",
        "https://169.254.169.254/latest/meta-data/",
        "https://10.1.2.3:8443/",
    ],
)
def test_nothing_is_sent_to_this_machine_or_a_private_network_in_whatever_form_it_is_written(url: str) -> None:
    sender = PinnedSender(to_private=False)
    refusal = sender.refusal(url)
    assert refusal is not None
    assert "webhooks_to_private_addresses" in refusal
    status, problem = post(sender, url)
    assert status is None
    assert "not on the public internet" in problem


def test_a_name_that_leads_to_a_private_address_is_refused_even_if_another_address_is_public() -> None:
    sender = PinnedSender(to_private=False, resolve=Names(["8.8.8.8", "10.0.0.1"]))
    assert "leads to 10.0.0.1" in post(sender, "https://example.org/")[1]


def test_a_name_is_resolved_once_so_that_it_cannot_lead_elsewhere_after_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the first answer is public, the second is this machine."""
    names = Names(["203.0.114.7"], ["127.0.0.1"])
    tried = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(socket, "create_connection", connect)
    status, problem = post(PinnedSender(to_private=False, resolve=names), "https://rebinding.example/")
    assert (status, tried, names.looks) == (None, [("203.0.114.7", 443)], 1)
    assert "nobody listens" in problem


def test_a_name_that_leads_nowhere_is_a_failed_attempt_and_no_refusal() -> None:
    def nowhere(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    sender = PinnedSender(to_private=False, resolve=nowhere)
    assert sender.refusal("https://later.example/") is None
    assert "not known" in post(sender, "https://later.example/")[1]


def test_the_request_carries_the_name_that_was_asked_for() -> None:
    with WebhookReceiver() as receiver:
        sender = PinnedSender(to_private=True, resolve=Names(["127.0.0.1"]))
        assert post(sender, f"http://hooks.example:{receiver.port}/a/b?c=d") == (200, "")
        (got,) = receiver.received
    assert (got.path, got.headers["host"]) == ("/a/b?c=d", f"hooks.example:{receiver.port}")


def test_tls_verifies_the_certificate_of_the_name_and_not_of_the_address(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "hooks.example")
    names = Names(["127.0.0.1"])
    trusting = PinnedSender(to_private=True, resolve=names, tls=certificates.client)
    with WebhookReceiver(tls=certificates.server()) as receiver:
        assert post(trusting, f"https://hooks.example:{receiver.port}/") == (200, "")
        assert "CERTIFICATE_VERIFY_FAILED" in post(trusting, f"https://other.example:{receiver.port}/")[1]
        usual = PinnedSender(to_private=True, resolve=names)
        assert "CERTIFICATE_VERIFY_FAILED" in post(usual, f"https://hooks.example:{receiver.port}/")[1]
        assert len(receiver.received) == 1


def test_a_redirect_is_not_followed() -> None:
    with WebhookReceiver() as inner:

        def redirect(handler: Handler, received: Received) -> None:
            handler.reply(307, location=inner.url)

        with WebhookReceiver(redirect) as outer:
            status, problem = post(PinnedSender(to_private=True), outer.url)
        assert (status, "redirects are not followed" in problem) == (307, True)
        assert inner.received == []


def test_a_refusing_answer_is_shown_in_part() -> None:
    def refuse(handler: Handler, received: Received) -> None:
        handler.reply(500, b"out of \x1b[31mcoffee" + b"!" * 10_000)

    with WebhookReceiver(refuse) as receiver:
        status, problem = post(PinnedSender(to_private=True), receiver.url)
    assert status == 500
    assert problem.startswith("it answered 500: out of  [31mcoffee!!!")
    assert len(problem) < 600


def test_an_endless_answer_is_cut_off() -> None:
    def talk(handler: Handler, received: Received) -> None:
        handler.send_response(400)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65_536)

    with WebhookReceiver(talk) as receiver:
        began = time.monotonic()
        assert post(PinnedSender(to_private=True, timeout_s=5), receiver.url)[0] == 400
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_receiver_that_sends_a_byte_now_and_then_is_left_in_time(head: bytes) -> None:
    def drip(handler: Handler, received: Received) -> None:
        handler.wfile.write(head)
        for byte in b"X-Slow: " + b"a" * 1_000:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)

    with WebhookReceiver(drip) as receiver:
        began = time.monotonic()
        status, problem = post(PinnedSender(to_private=True, timeout_s=0.5), receiver.url)
        assert (status, problem) == (None, "no answer within 0.5 seconds")
        assert time.monotonic() - began < 3


def test_a_receiver_that_never_finishes_the_handshake_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sender = PinnedSender(to_private=True, timeout_s=0.3)
        assert post(sender, f"https://127.0.0.1:{silent.getsockname()[1]}/") == (None, "no answer within 0.3 seconds")


def test_requests_under_way_can_be_ended() -> None:
    arrived, hold = threading.Event(), threading.Event()

    def hang(handler: Handler, received: Received) -> None:
        arrived.set()
        hold.wait(20)

    sender = PinnedSender(to_private=True, timeout_s=15)
    results = []
    with WebhookReceiver(hang) as receiver:
        thread = threading.Thread(target=lambda: results.append(post(sender, receiver.url)))
        thread.start()
        assert arrived.wait(5)
        began = time.monotonic()
        sender.abort()
        thread.join()
        assert time.monotonic() - began < 2
        hold.set()
    assert results[0][0] is None


def test_an_answer_that_is_no_http_is_a_failed_attempt() -> None:
    def mumble(handler: Handler, received: Received) -> None:
        handler.wfile.write(b"\x00\xff mumble\r\n\r\n")
        handler.close_connection = True

    with WebhookReceiver(mumble) as receiver:
        assert "BadStatusLine" in post(PinnedSender(to_private=True), receiver.url)[1]


def test_the_default_context_checks_names() -> None:
    context = PinnedSender(to_private=False)._context
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
