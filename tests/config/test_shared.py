import json

import pytest

from fedmuon_app.config import at_node, load, only_longer, shared
from fedmuon_app.errors import InputError

OWN = {"device": "cpu", "engine.threads": 2}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["algorithm=scaffold_adam", "algorithm.lmo.exclude=[a,b]", "model=resnet18_gn"],
        ["experiment=paper/fashion_mnist", "local.steps=7"],
        ["model=custom", "model._target_=a.B", "+model.x={y:[1,2]}", "algorithm.lmo.norm=max"],
    ],
)
def test_a_node_has_the_servers_method_and_its_own_machine(words: list[str]) -> None:
    c = load(["engine=deployment", "engine.threads=9", "run_dir=/server", "dataset.path=/data", *words])
    here = at_node(shared(c), OWN)
    for key in ("algorithm", "model", "local", "partition", "seed", "rounds", "compute"):
        assert getattr(here, key) == getattr(c, key)
    assert (here.dataset.name, here.federation.num_clients) == (c.dataset.name, c.federation.num_clients)
    assert (here.engine.name, here.engine.threads, here.device) == ("deployment", 2, "cpu")
    assert (here.run_dir, here.dataset.path, here.resume, here.federation.nodes) == (None, None, None, None)


def test_the_text_names_no_place_of_the_servers() -> None:
    c = load(["engine=deployment", "run_dir=/secret/run", "dataset.path=/secret/data", "federation.nodes=/secret/n"])
    assert "secret" not in shared(c)
    assert "engine" not in shared(c)


def test_a_longer_run_is_the_same_run() -> None:
    a, b, other = (shared(load(words)) for words in (["rounds=3"], ["rounds=9"], ["rounds=9", "algorithm.alpha=0.2"]))
    assert only_longer(a, b)
    assert not only_longer(a, other)


def test_the_values_are_checked_as_anybodys() -> None:
    text = json.dumps(json.loads(shared(load([]))) | {"algorithm.alpha": 7})
    with pytest.raises(InputError, match=r"algorithm\.alpha = 7.*: must lie in \(0, 1\]"):
        at_node(text, OWN)
    with pytest.raises(InputError, match="device = tpu: must be auto, cpu or cuda"):
        at_node(shared(load([])), OWN | {"device": "tpu"})
