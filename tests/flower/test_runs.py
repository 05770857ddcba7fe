from typing import Any

import pytest
from flwr.app import Context, RecordDict

from fedmuon_app.config import dump, load
from fedmuon_app.flower.runs import configuration


def context(**run_config: Any) -> Context:
    return Context(run_id=7, node_id=1, node_config={}, state=RecordDict(), run_config=run_config)


@pytest.mark.parametrize("words", ["", "engine=in_process", "engine=simulation rounds=3"])
def test_flower_decides_the_engine_and_what_depends_on_it(words: str) -> None:
    deployed = configuration(context(overrides=words), "deployment")
    assert (deployed.engine.name, deployed.federation.norm_bound) == ("deployment", 10)
    simulated = configuration(context(overrides=words), "simulation")
    assert (simulated.engine.name, simulated.federation.norm_bound) == ("simulation", None)
    assert str(simulated.run_dir).endswith("fedmuon-runs/7")


def test_own_data_needs_no_word_of_the_engine() -> None:
    words = "partition=own dataset=image_folder 'dataset.classes=[a,b]'"
    assert configuration(context(overrides=words), "deployment").partition.name == "own"


def test_a_whole_configuration_is_taken_as_it_is() -> None:
    given = load(["engine=deployment", "run_dir=/there", "federation.norm_bound=3"])
    assert configuration(context(resolved=dump(given), overrides="rounds=9"), "deployment") == given
