"""FedAvg on pfl-research (pip install pfl): the quickest simulator that is published, on the same workload."""

import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor
from torch.nn import functional as F

from benchmarks.plain import Data, PlainLeNet


class Model(PlainLeNet):
    """With what pfl asks of a module."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Of a minibatch."""
        self.train()
        return F.cross_entropy(self(x), y.long())  # pfl makes floats of everything

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Of a minibatch; not asked for here."""
        return {"loss": Weighted(F.cross_entropy(self(x), y.long(), reduction="sum").item(), len(y))}


class Clock(TrainingProcessCallback):
    """The time after each round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        """Called by pfl."""
        self.times.append(time.perf_counter())
        return False, Metrics()


class Pfl:
    """A simulation that goes on where it stopped."""

    def __init__(self, data: Data, S: int, K: int, B: int) -> None:
        users = {i: [x.numpy(), y.numpy()] for i, (x, y) in enumerate(data)}
        training = FederatedDataset.from_slices(users, get_user_sampler("random", list(users)))
        module = Model()
        central = torch.optim.SGD(module.parameters(), 1.0)
        self._model = PyTorchModel(module, torch.optim.SGD, central)
        self._backend = SimulatedBackend(training, training)
        self._S, self._K, self._B = S, K, B

    def rounds(self, count: int) -> list[float]:
        """Seconds of each of so many rounds, none of them with an evaluation."""
        clock = Clock()
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=count + 1,
                evaluation_frequency=10**9,  # pfl evaluates before its first round only
                train_cohort_size=self._S,
                val_cohort_size=0,
            ),
            backend=self._backend,
            model=self._model,
            model_train_params=NNTrainHyperParams(
                local_num_epochs=None, local_num_steps=self._K, local_learning_rate=0.01, local_batch_size=self._B
            ),
            model_eval_params=NNEvalHyperParams(local_batch_size=self._B),
            callbacks=[clock],
        )
        return np.diff(clock.times).tolist()
