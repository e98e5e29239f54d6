"""How the server sends the page: to everybody, under a strict policy, and with advice where it is not built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.client import TestClient
from wtb.api import page

pytestmark = pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page as a build leaves it."""
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<p>the page</p>")
    (folder / "assets" / "index-BzaSMQ7t.js").write_text("show()")
    (folder / "assets" / "icon.svg").write_text("<svg/>")
    (folder / "secret.txt").write_text("not of the page")
    monkeypatch.setattr(page, "FOLDER", folder)
    return folder


@pytest.mark.parametrize("address", ["/", "/runs", "/runs/a%2Fb", "/batches/qa/cases/c%231?view=x", "/audit"])
def test_every_address_of_the_page_is_the_page(built: Path, stranger: TestClient, address: str) -> None:
    answer = stranger.get(address)
    assert (answer.status_code, answer.text) == (200, "<p>the page</p>")
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "worker-src")} == {"'self'"}
    assert policy["img-src"] == "'self' data:"
    assert answer.headers["cache-control"] == "no-cache"


def test_files_with_a_hash_in_their_name_are_kept_by_browsers(built: Path, stranger: TestClient) -> None:
    script = stranger.get("/assets/index-BzaSMQ7t.js")
    assert (script.text, "immutable" in script.headers["cache-control"]) == ("show()", True)
    assert script.headers["content-type"].startswith("text/javascript")
    assert stranger.get("/assets/icon.svg").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["gone.js", "..%2Fsecret.txt", "%2e%2e/secret.txt", "index-BzaSMQ7t.js%00"])
def test_nothing_but_files_of_the_page_is_sent(built: Path, stranger: TestClient, name: str) -> None:
    answer = stranger.get(f"/assets/{name}")
    assert answer.status_code in (401, 404)
    assert "not of the page" not in answer.text


def test_a_server_without_the_page_says_how_to_get_it(
    stranger: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path / "absent")
    answer = stranger.get("/")
    assert (answer.status_code, "make web" in answer.text, "install a release" in answer.text) == (200, True, True)
    assert stranger.get("/assets/index-BzaSMQ7t.js").status_code == 404


def test_addresses_beside_the_page_stay_closed(built: Path, stranger: TestClient) -> None:
    assert {stranger.get(path).status_code for path in ("/runsx", "/api/v1/executions", "/openapi.json", "/x")} == {401}
