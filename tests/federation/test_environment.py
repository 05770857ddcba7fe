import subprocess
from pathlib import Path

from fedmuon_app.federation.environment import commit, versions


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_clone_and_whether_it_was_changed(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit(tmp_path) == head[:12]
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == head[:12] + "-dirty"


def test_the_packages() -> None:
    assert {"python", "torch", "flwr"} <= versions().keys()
