"""The types of a configuration: which keys there are. The values stand in conf/."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

OWN = "own"  # the partition of clients that bring their data


@dataclass
class Lmo:
    """The oracle of Muon's step. ``norm`` is a name, or has a ``_target_``."""

    norm: Any = MISSING
    steps: int = MISSING
    exact: bool = MISSING
    dtype: str = MISSING
    coefficients: list[float] = MISSING
    scale: str = MISSING
    split: dict[str, int] | None = MISSING
    exclude: list[str] = MISSING


@dataclass
class Algorithm:
    """A row of METHODS and its numbers. Step rules have a ``_target_`` and arguments, a schedule may have."""

    name: str = MISSING
    label: str | None = MISSING
    colour: str | None = MISSING
    step: dict[str, Any] = field(default_factory=dict)
    vector_step: dict[str, Any] = field(default_factory=dict)
    lr: float = MISSING
    vector_lr: float | None = MISSING
    schedule: Any = MISSING
    warmup: int = MISSING
    final: float = MISSING
    weight_decay: float = MISSING
    clip: float | None = MISSING
    prox: float = MISSING
    alpha: float = MISSING
    momentum: str = MISSING
    keep_momentum: bool = MISSING
    control: str | None = MISSING
    start: str = MISSING
    outer_lr: float = MISSING
    outer_momentum: float = MISSING
    beta2: float = MISSING
    eps: float = MISSING
    lmo: Lmo = field(default_factory=Lmo)


@dataclass
class Dataset:
    """Where the examples come from: ``_target_`` is called with ``args``."""

    name: str = MISSING
    _target_: str | None = MISSING
    args: dict[str, Any] = field(default_factory=dict)
    path: str | None = MISSING
    validation: float = MISSING
    client_validation: float = MISSING
    augment: str = MISSING
    classes: list[str] | None = MISSING
    size: int = MISSING
    channels: int = MISSING
    target: str | None = MISSING
    length: int = MISSING


@dataclass
class Partition:
    """Which client holds which example: ``_target_`` makes a partitioner of flwr-datasets', with ``args``."""

    name: str = MISSING
    _target_: str | None = MISSING
    args: dict[str, Any] = field(default_factory=dict)
    beta: float = MISSING
    classes_per_client: int = MISSING
    shards_per_client: int = MISSING
    column: str | None = MISSING


@dataclass
class Federation:
    """n, S, when a round on Flower is over, and which replies count."""

    num_clients: int = MISSING
    clients_per_round: int = MISSING
    connect_timeout: float = MISSING
    round_timeout: float = MISSING
    min_replies: int | None = MISSING
    grace: float = MISSING
    norm_bound: float | None = MISSING
    aggregate: Any = MISSING
    byzantine: int = MISSING
    nodes: str | None = MISSING


@dataclass
class Local:
    """K and B."""

    steps: int = MISSING
    batch_size: int = MISSING


@dataclass
class Evaluation:
    """How often X is tested, and what else is measured then."""

    every: int = MISSING
    clients: str = MISSING
    confusion: bool = MISSING
    diagnostics: int | None = MISSING


@dataclass
class Stop:
    """When a run ends before its last round."""

    accuracy: float | None = MISSING
    metric: str | None = MISSING
    value: float | None = MISSING
    patience: int | None = MISSING
    delta: float = MISSING
    seconds: float | None = MISSING
    bytes: float | None = MISSING


@dataclass
class Checkpoint:
    """How often the run is written down, to be resumed."""

    every: int | None = MISSING
    best: bool = MISSING


@dataclass
class Engine:
    """Where the clients train."""

    name: str = MISSING
    superlink: str | None = MISSING
    root_certificates: str | None = MISSING
    insecure: bool = MISSING
    threads: int = MISSING
    workers: int | None = MISSING
    devices: list[str] | None = MISSING
    stacked: bool = MISSING
    stack_memory: float | None = MISSING
    states: str = MISSING
    cpus_per_client: int = MISSING
    gpus_per_client: float = MISSING
    ray: str | None = MISSING
    shared: str | None = MISSING


@dataclass
class Config:
    """A run. ``model`` and ``task`` are free: ``_target_`` and the arguments of what it names."""

    rounds: int = MISSING
    seed: int = MISSING
    device: str = MISSING
    compute: str = MISSING
    run_dir: str | None = MISSING
    tracker: Any = MISSING
    resume: str | None = MISSING
    dry_run: bool = MISSING
    algorithm: Algorithm = field(default_factory=Algorithm)
    dataset: Dataset = field(default_factory=Dataset)
    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    partition: Partition = field(default_factory=Partition)
    federation: Federation = field(default_factory=Federation)
    local: Local = field(default_factory=Local)
    evaluation: Evaluation = field(default_factory=Evaluation)
    stop: Stop = field(default_factory=Stop)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    engine: Engine = field(default_factory=Engine)
