from pathlib import Path

from fedmuon_app.disk import write_whole
from fedmuon_app.engines.simulation import Tail


def test_new_lines_come_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    tail = Tail(file)
    assert tail.lines() == []
    file.write_text("one\ntwo\nthr")
    assert tail.lines() == ["one", "two"]
    with file.open("a") as more:
        more.write("ee\n")
    assert tail.lines() == ["three"]
    assert tail.lines() == []


def test_what_a_former_run_wrote_is_not_new_and_a_file_in_its_place_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a former life's first line\nand its second, which the checkpoint does not have\n")
    tail = Tail(file)
    assert tail.lines() == []
    write_whole(file, b"a former life's first line\n")
    assert tail.lines() == ["a former life's first line"]
    with file.open("a") as more:
        more.write("another second\n")
    assert tail.lines() == ["another second"]
