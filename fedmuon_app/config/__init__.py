"""The configuration of a run, from Hydra to checked dataclasses."""

from fedmuon_app.config.load import build_module, conf_dir, dump, load, loads, register, split, typed
from fedmuon_app.config.resume import flat, refuse_another, resumed
from fedmuon_app.config.schema import Config

__all__ = [
    "Config",
    "build_module",
    "conf_dir",
    "dump",
    "flat",
    "load",
    "loads",
    "refuse_another",
    "register",
    "resumed",
    "split",
    "typed",
]
