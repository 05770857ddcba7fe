"""The configuration of a run, from Hydra to checked dataclasses."""

from fedmuon_app.config.explain import COMPOSING, explain, in_quotes
from fedmuon_app.config.files import conf_dir, flat, names
from fedmuon_app.config.help import help_text
from fedmuon_app.config.load import build_module, dump, load, loads, register, split, typed
from fedmuon_app.config.resume import refuse_another, resumed
from fedmuon_app.config.schema import Config

__all__ = [
    "COMPOSING",
    "Config",
    "build_module",
    "conf_dir",
    "dump",
    "explain",
    "flat",
    "help_text",
    "in_quotes",
    "load",
    "loads",
    "names",
    "refuse_another",
    "register",
    "resumed",
    "split",
    "typed",
]
