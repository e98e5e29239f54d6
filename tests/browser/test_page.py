"""The frame of the page: signing in, the sections, colours, and addresses that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.served import PHONE, Served, Window, serving

SECTIONS = ("/runs", "/batches", "/workflows", "/audit")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bench")) as running:
        yield running


def test_a_link_signs_in_and_every_section_is_shown_without_a_fault(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    for section in SECTIONS:
        page = window.open(section)
        expect(page.locator("h1").or_(page.locator("main h2")).first).to_be_visible()
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        window.check_axe()
    window.check()
    window.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_empty_bench_says_what_to_do_first(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with serving(tmp_path) as fresh:  # in which no other test has made a token
        window = Window(browser, fresh, viewport=PHONE, color_scheme=scheme)
        for section in SECTIONS:
            window.open(section)
            expect(window.page.locator(".empty")).to_be_visible()
            window.check_axe()
            window.look(f"empty-{section[1:]}-{scheme}-phone")
        window.check()
        window.close()


def test_who_is_not_signed_in_is_told_how_and_a_token_signs_in(browser: Browser, served: Served) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served.address}/runs/x")
    expect(page.get_by_text("wtb serve --link")).to_be_visible()
    page.get_by_label("Or sign in with a token").fill("wtb_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, revoked or expired")
    page.get_by_label("Or sign in with a token").fill(
        served.wtb("token", "create", "ann", "--role", "viewer").split()[0]
    )
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who")).to_contain_text("ann (viewer)")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("wtb serve --link")).to_be_visible()
    context.close()


def test_the_colours_can_be_chosen_and_stay_chosen(browser: Browser, served: Served) -> None:
    window = Window(browser, served, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = window.page.evaluate(ground)
    window.page.get_by_role("button", name="Colours: system").click()
    window.page.get_by_role("button", name="Colours: light").click()
    expect(window.page.get_by_role("button", name="Colours: dark")).to_be_visible()
    assert window.page.evaluate(ground) != light
    window.page.reload()
    expect(window.page.get_by_role("button", name="Colours: dark")).to_be_visible()
    dark = window.page.evaluate(ground)
    window.expected.append("401")
    window.page.get_by_role("button", name="Sign out").click()
    expect(window.page.get_by_text("wtb serve --link")).to_be_visible()
    assert window.page.evaluate(ground) == dark  # who signs in has chosen, too
    window.check()
    window.close()


def test_an_address_that_leads_nowhere_says_so(browser: Browser, served: Served) -> None:
    window = Window(browser, served)
    window.open("/runs/a/b/c/d")
    expect(window.page.get_by_text("There is no page here")).to_be_visible()
    window.check()
    window.close()
