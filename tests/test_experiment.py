from pathlib import Path

import pytest
import torch

from fedmuon_app.algorithms.steps import Adam, Muon
from fedmuon_app.config import load
from fedmuon_app.data.examples import Examples
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build, pick_device, refuse_another_run
from fedmuon_app.method_of import build_hyper, build_method


def test_a_step_size_of_vectors_that_is_not_given_is_that_of_matrices() -> None:
    hp = build_hyper(load(["algorithm=fedavg"]))
    assert hp.vector_lr == hp.lr == 0.1


def test_the_numbers_of_the_oracle() -> None:
    c = load(["algorithm.lmo.exact=true", "algorithm.momentum=heavy_ball"])
    assert build_method(c).matrix_step == Muon(T=None)
    assert build_hyper(c).heavy_ball
    assert build_method(load([])).matrix_step == Muon("spectral", 5, (15 / 8, -5 / 4, 3 / 8), False, "moonlight")
    assert build_method(load(["algorithm.lmo.steps=0"])).matrix_step == Muon(T=0)
    assert build_method(load(["algorithm.lmo.dtype=bfloat16"])).matrix_step == Muon(bfloat16=True)
    c = load(["algorithm=fedavg_adam", "algorithm.beta2=0.9", "algorithm.momentum=heavy_ball", "algorithm.alpha=0.5"])
    assert build_method(c).vector_step == Adam(0.5, True, 0.9, 1e-8)


def test_the_control_can_be_replaced() -> None:
    assert build_method(load(["algorithm=scaffold", "algorithm.control=momentum"])).control == "momentum"
    assert build_method(load(["algorithm=fedmuon", "algorithm.control=none"])).control == "none"
    assert build_method(load(["algorithm=scaffold"])).control == "gradient"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert pick_device("auto").type == "cpu"
    with pytest.raises(InputError, match="device = cuda: torch sees 0 GPUs"):
        pick_device("cuda")


def test_a_data_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for dataset in ("fashion_mnist", "cifar10", "image_folder"):
        with pytest.raises(InputError, match="is not there: name what holds the data"):
            build(load([f"dataset={dataset}", f"dataset.path={tmp_path / 'nowhere'}"]))


def test_any_torch_module_trains_by_its_name() -> None:
    model = ["model=custom", "model._target_=torchvision.models.squeezenet1_1", "+model.num_classes=10"]
    with pytest.raises(InputError, match="SqueezeNet cannot take inputs of 1×28×28"):
        build(load(model))
    with pytest.raises(InputError, match=r"model\._target_ = no\.such\.Thing cannot be built"):
        build(load(["model=custom", "model._target_=no.such.Thing"]))
    with pytest.raises(InputError, match="unexpected keyword argument 'depth'"):
        build(load(["+model.depth=3"]))


def test_a_validation_set_is_taken_from_the_training_images_and_replaces_the_test() -> None:
    whole, tuned = (build(load(["partition=iid", f"dataset.validation={share}"])) for share in (0, 0.1))
    train, test = tuned.clients.examples, tuned.data.test
    assert len(test) == round(0.1 * len(whole.clients.examples))
    assert len(train) + len(test) == len(whole.clients.examples) == sum(tuned.sizes().values()) + len(test)

    def seen(*parts: Examples) -> list[bytes]:
        return sorted(
            image.numpy().tobytes() + bytes([int(y)])
            for e in parts
            for image, y in zip(e.inputs, e.targets, strict=True)
        )

    assert seen(train, test) == seen(whole.clients.examples)
    again, other = (build(load(["dataset.validation=0.1", f"seed={seed}"])).data.test for seed in (0, 1))
    assert seen(again) == seen(test) != seen(other)
    with pytest.raises(InputError, match=r"dataset\.validation = 1e-06: of 1438 examples none is left"):
        build(load(["dataset.validation=1e-6"]))


def test_every_client_has_its_share() -> None:
    experiment = build(load(["federation.num_clients=5", "federation.clients_per_round=2", "partition=iid"]))
    assert sum(experiment.sizes().values()) == len(experiment.clients.examples)
    assert max(experiment.sizes().values()) - min(experiment.sizes().values()) <= 1


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    words = ["rounds=2", "local.steps=1", "local.batch_size=8", "engine.workers=0"]
    refuse_another_run(load(words), tmp_path)  # nothing there
    in_process.run(load(words), tmp_path)
    for _ in range(2):  # by its result, and by its checkpoint alone
        refuse_another_run(load([*words, "rounds=9", "engine=simulation"]), tmp_path)
        with pytest.raises(InputError, match=r"seed = 1: the run to resume in .* has 0"):
            refuse_another_run(load([*words, "seed=1"]), tmp_path)
        (tmp_path / "result.json").unlink(missing_ok=True)
