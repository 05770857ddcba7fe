import stat
from pathlib import Path
from typing import Any

import pytest

from fedmuon_app.config import load, shared
from fedmuon_app.errors import SiteError
from fedmuon_app.flower.site import NOT_ASKED, digest, site

GOOD: dict[str, Any] = {"partition-id": 0, "num-partitions": 2}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"num-partitions": 2}, "lacks partition-id: --node-config 'partition-id=0 num-partitions=2'"),
        ({"partition-id": 0}, "lacks num-partitions"),
        (GOOD | {"partition-id": "zero"}, "partition-id = 'zero': must be a whole number from 0 on"),
        (GOOD | {"partition-id": -1}, "partition-id = -1: must be a whole number from 0 on"),
        (GOOD | {"partition-id": 0.5}, r"partition-id = 0\.5: must be a whole number from 0 on"),
        (GOOD | {"num-partitions": 0}, "num-partitions = 0: must be a whole number from 1 on"),
        (GOOD | {"partition-id": 2}, "partition-id = 2: must be below num-partitions = 2"),
        (GOOD | {"threads": 0}, "threads = 0: must be a whole number from 1 on"),
        (GOOD | {"data-paht": "/srv"}, "has a key 'data-paht'; known are partition-id"),
        (GOOD | {"data-path": "pictures"}, "a relative data-path: must be an absolute path"),
        (GOOD | {"state-dir": "states"}, "a relative state-dir: must be an absolute path"),
        (GOOD | {"data-path": "/no/such/place"}, "its data-path is no folder"),
    ],
)
def test_a_wrong_node_configuration_has_its_sentence(given: dict[str, Any], why: str) -> None:
    with pytest.raises(SiteError, match=why):
        site(given)


def test_who_plays_whom_and_where_states_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(GOOD | {"partition-id": 1})
    assert [i for i in range(5) if here.plays(i)] == [1, 3]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert site(GOOD).folder("ab12") == tmp_path / "fedmuon" / "ab12"
    assert site(GOOD | {"state-dir": str(tmp_path / "x")}).folder("ab12") == tmp_path / "x" / "ab12"


def test_a_configuration_is_kept_for_the_calls(tmp_path: Path) -> None:
    here = site(GOOD | {"state-dir": str(tmp_path), "device": "cpu", "dataset-path": "/data"})
    text = shared(load(["engine=deployment"]))
    config = here.meet("ab12", text)
    assert (config.device, config.dataset.path, config.run_dir) == ("cpu", "/data", None)
    assert here.recall("ab12", digest(text)) == config
    longer = shared(load(["engine=deployment", "rounds=999"]))
    assert here.meet("ab12", longer).rounds == 999
    with pytest.raises(SiteError, match=NOT_ASKED):
        here.recall("ab12", digest(text))
    with pytest.raises(SiteError, match=NOT_ASKED):
        here.recall("cd34", digest(text))
    assert stat.S_IMODE((tmp_path / "ab12" / "configuration.json").stat().st_mode) == 0o600


def test_data_of_its_own_and_a_split_do_not_go_together(tmp_path: Path) -> None:
    own = shared(load(["engine=deployment", "partition=own", "dataset=image_folder", "dataset.classes=[a,b]"]))
    dealt = shared(load(["engine=deployment"]))
    with pytest.raises(SiteError, match="has no data-path, and partition=own leaves the data to the nodes"):
        site(GOOD | {"state-dir": str(tmp_path)}).meet("ab12", own)
    nonempty_clients = site(GOOD | {"state-dir": str(tmp_path), "data-path": str(tmp_path)})
    with pytest.raises(SiteError, match="the run needs partition=own"):
        nonempty_clients.meet("ab12", dealt)
    assert nonempty_clients.meet("ab12", own).partition.name == "own"
