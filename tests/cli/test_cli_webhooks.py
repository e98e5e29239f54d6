"""`wtb webhook` as a person types it."""

from __future__ import annotations

from pathlib import Path

from tests.shell import Shell

SETTINGS = "[server]\nwebhooks_to_private_addresses = true\n"


def test_a_webhook_is_added_listed_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "wtb.toml").write_text(SETTINGS)
    shell = Shell(tmp_path)
    assert "no webhook yet" in shell.wtb("webhook", "ls").stdout
    added = shell.wtb("webhook", "add", "http://127.0.0.1:9/hook", "--type", "execution.failed")
    assert added.stdout.startswith("whsec_")
    assert added.stdout.count("\n") == 1, "a script reads the secret alone"
    (listed,) = shell.json("webhook", "ls")
    assert (listed["url"], listed["types"]) == ("http://127.0.0.1:9/hook", ["execution.failed"])
    assert listed["id"] in added.stderr
    assert "secret" not in listed
    assert "execution.failed" in shell.wtb("webhook", "ls").stdout
    assert "no such delivery" in shell.wtb("webhook", "deliveries", listed["id"]).stdout
    lost = shell.wtb("webhook", "retry", listed["id"], "1", code=1)
    assert "no delivery of event '1'" in lost.stderr
    assert f"Deleted webhook {listed['id']}" in shell.wtb("webhook", "rm", listed["id"]).stdout
    assert "no webhook" in shell.wtb("webhook", "rm", listed["id"], code=1).stderr


def test_a_private_address_is_refused_with_the_setting_that_allows_it(tmp_path: Path) -> None:
    refused = Shell(tmp_path).wtb("webhook", "add", "https://127.0.0.1/", code=2)
    assert "server.webhooks_to_private_addresses" in refused.stderr
