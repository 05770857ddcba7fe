"""What is named by `_target_`: built for its owner, refused at a node that does not allow it."""

from typing import Any

import pytest
import torch

from fedmuon_app.algorithms.steps import Muon, Sgd
from fedmuon_app.config import at_node, load, refuse_others, shared, targets
from fedmuon_app.config.targets import build_target
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.method_of import build_hyper, build_method


def negative(G: torch.Tensor) -> torch.Tensor:
    return -G


class Halves:
    def __call__(self, r: int) -> float:
        return 0.5**r


def test_a_rule_a_norm_and_a_schedule_of_ones_own() -> None:
    here = "tests.config.test_targets"
    c = load([
        "algorithm.step._target_=fedmuon_app.algorithms.steps.Muon", "+algorithm.step.T=2", "+algorithm.step.scale=one",
        "algorithm.vector_step._target_=fedmuon_app.algorithms.steps.Sgd",
        f"algorithm.schedule={{_target_:{here}.Halves}}",
    ])  # fmt: skip
    assert build_method(c).matrix_step == Muon(T=2, scale="one")
    assert build_method(c).vector_step == Sgd()
    assert build_method(c).control == "momentum"
    assert build_hyper(c).at(2).lr == 0.25 * c.algorithm.lr
    own = build_method(load([f"algorithm.lmo.norm={{_target_:{here}.negative,_partial_:true}}"])).matrix_step
    assert isinstance(own, Muon)
    G = torch.randn(3, 4)
    assert torch.equal(own.lmo(G), -G)


def test_containers_are_plain() -> None:
    said = build_target("x", {"_target_": "builtins.dict", "a": [1, {"b": 2}]})
    assert type(said["a"]) is list
    assert type(said["a"][1]) is dict


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["algorithm.step._target_=tests.own.Rule"], "algorithm.step"),
        (["algorithm.vector_step._target_=os.system"], "algorithm.vector_step"),
        (["algorithm.schedule={_target_:os.system}"], "algorithm.schedule"),
        (["algorithm.lmo.norm={_target_:os.system}"], "algorithm.lmo.norm"),
        (["dataset=custom", "dataset._target_=os.system"], "dataset"),
        (["task._target_=os.system"], "task"),
        (["model._target_=os.system"], "model"),
    ],
)
def test_a_node_builds_nothing_that_it_does_not_allow(words: list[str], key: str) -> None:
    c = at_node(shared(load(words)), {})
    for allow, why in (([], "not among the modules that this node allows"), (["os"], "it is no class")):
        refused = [str(error) for where, node in targets(c) if (error := refusal(where, node, allow))]
        if key == "algorithm.step" and allow:
            continue
        assert len(refused) == 1
        assert refused[0].startswith(f"{key}._target_ = ")
        assert why in refused[0]


def refusal(key: str, node: dict[str, Any], allow: list[str]) -> InputError | None:
    try:
        refuse_others(key, node, allow)
    except InputError as error:
        return error
    return None


def test_what_conf_names_is_allowed_and_has_the_nodes_own_places() -> None:
    c = at_node(shared(load(["dataset=fashion_mnist", "dataset.path=/the/servers"])), {"dataset.path": "/the/nodes"})
    assert [refusal(key, node, []) for key, node in targets(c)] == [None] * 4
    assert c.dataset.args == {"path": "/the/nodes"}
    assert "/the/servers" not in shared(load(["dataset=fashion_mnist", "dataset.path=/the/servers"]))
    own = at_node(shared(load(["dataset=custom", "dataset._target_=own.Faces", "+dataset.args.path=/a/word"])), {})
    assert own.dataset.args == {"path": "/a/word"}  # an argument like any other of somebody's own loader
    with pytest.raises(InputError, match="its arguments must be plain values"):
        refuse_others("task", {"_target_": "x", "inner": {"_target_": "y"}}, ["x"])


def test_a_run_at_a_node_is_the_servers() -> None:
    c = load(["rounds=2", "local.steps=1"])
    at = at_node(shared(c), {})
    assert torch.equal(build(at).server.X, build(c).server.X)
    assert all((a == b).all() for a, b in zip(build(at).clients.parts, build(c).clients.parts, strict=True))
