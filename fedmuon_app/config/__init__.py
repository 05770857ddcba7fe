"""The configuration of a run, from Hydra to checked dataclasses."""

from fedmuon_app.config.explain import COMPOSING, explain, in_quotes
from fedmuon_app.config.files import choice, conf_dir, flat, names
from fedmuon_app.config.help import help_text
from fedmuon_app.config.load import dump, load, loads, register, split, typed
from fedmuon_app.config.resume import refuse_another, resumed
from fedmuon_app.config.schema import OWN, Config
from fedmuon_app.config.shared import at_node, only_longer, shared
from fedmuon_app.config.targets import build_target, refuse_others, targets, with_args

__all__ = [
    "COMPOSING",
    "OWN",
    "Config",
    "at_node",
    "build_target",
    "choice",
    "conf_dir",
    "dump",
    "explain",
    "flat",
    "help_text",
    "in_quotes",
    "load",
    "loads",
    "names",
    "only_longer",
    "refuse_another",
    "refuse_others",
    "register",
    "resumed",
    "shared",
    "split",
    "targets",
    "typed",
    "with_args",
]
