"""Wheels and source distributions: they carry the page, and are not built without it."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
INDEX = "wtb/api/page_files/index.html"


def build(folder: Path, into: Path, *kinds: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build distributions of a source tree with the hatchling that is installed."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", into, *(word for kind in kinds for word in ("-t", kind))],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("dist")
    assert (ROOT / "src" / INDEX).is_file(), "these tests need the page: run `make web`"
    done = build(ROOT, into, "wheel", "sdist")
    assert done.returncode == 0, done.stderr
    return into


def test_a_wheel_and_a_source_distribution_carry_the_page(built: Path) -> None:
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    assert INDEX in files
    assert [name for name in files if re.search(r"page_files/assets/index-.*\.js", name)] != []
    with tarfile.open(source) as packed:
        names = packed.getnames()
    assert [name for name in names if name.endswith(f"src/{INDEX}")] != []
    assert [name for name in names if "node_modules" in name] == []


def test_the_page_is_at_most_300_kb_gzipped() -> None:
    files = [file for file in (ROOT / "src" / INDEX).parent.rglob("*") if file.is_file()]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= 300_000


def test_a_wheel_is_built_of_a_source_distribution_without_node(built: Path, tmp_path: Path) -> None:
    tree = unpacked(built, tmp_path)
    done = build(tree, tmp_path / "again", "wheel", PATH=without_npm(tmp_path))
    assert done.returncode == 0, done.stderr
    [wheel], [first] = (tmp_path / "again").glob("*.whl"), built.glob("*.whl")
    assert contents(wheel) == contents(first)


def test_a_build_whose_page_cannot_be_made_fails(built: Path, tmp_path: Path) -> None:
    tree = unpacked(built, tmp_path)
    shutil.rmtree(tree / "src" / INDEX.removesuffix("/index.html"))
    done = build(tree, tmp_path / "again", "wheel", PATH=without_npm(tmp_path))
    assert done.returncode != 0
    assert "npm" in done.stderr
    assert not list((tmp_path / "again").glob("*.whl"))


def test_building_the_page_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        words = ["run", "build", "--", "--logLevel", "warn", "--emptyOutDir", "--outDir", str(tmp_path / name)]
        subprocess.run([ROOT / "scripts" / "web", *words], check=True)
    assert digests(tmp_path / "first") == digests(tmp_path / "second")
    assert len(digests(tmp_path / "first")) > 3


def test_an_installed_wheel_serves_the_page(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(subprocess.run([python, "-c", SITE], capture_output=True, text=True, check=True).stdout.strip())
    with zipfile.ZipFile(next(iter(built.glob("*.whl")))) as archive:
        archive.extractall(packages)
    # What the wheel needs comes from here: a test fetches nothing.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib"))
    server = subprocess.Popen(
        [python, "-P", "-m", "wtb", "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert found is not None
        page = httpx.get(f"{found[0]}/runs", trust_env=False)
        [script] = re.findall(r'src="(/assets/[^"]+\.js)"', page.text)
        assert httpx.get(found[0] + script, trust_env=False).status_code == 200
    finally:
        server.terminate()
        server.communicate(timeout=60)


SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def unpacked(built: Path, into: Path) -> Path:
    """Return the folder of the source distribution."""
    (into / "source").mkdir()
    subprocess.run(["tar", "-xf", next(iter(built.glob("*.tar.gz"))), "-C", into / "source"], check=True)
    [tree] = (into / "source").iterdir()
    return tree


def without_npm(folder: Path) -> str:
    """Return a PATH whose npm says that it cannot."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "npm").write_text("#!/bin/sh\necho 'npm: no network' >&2\nexit 1\n")
    (programs / "npm").chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def digests(folder: Path) -> dict[str, str]:
    """Return what each file of a folder holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
