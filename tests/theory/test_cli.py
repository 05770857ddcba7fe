import csv
import sys
from pathlib import Path

import pytest

from fedmuon_app.theory import cli, theorem_1


def test_a_table_a_file_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = theorem_1.measure(rounds=3)
    monkeypatch.setattr(theorem_1, "measure", lambda: measured)
    monkeypatch.setattr(sys, "argv", ["fedmuon-theory", "theorem-1", "--out", str(tmp_path / "out")])
    cli.main()
    assert "Theorem 1" in capsys.readouterr().out
    with (tmp_path / "out" / "theorem-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(measured) == 24
    assert (tmp_path / "out" / "theorem-1.png").stat().st_size > 10_000
