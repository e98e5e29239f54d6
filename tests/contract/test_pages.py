"""Every storage keeps the contract of Pages."""

from wtb.testing.pages import PagesContract


class TestPages(PagesContract): ...
