"""What ``fedmuon --help`` prints: what the app is, three examples, and each key with its value and what it means."""

from fedmuon_app.config.files import conf_dir, names

INTRODUCTION = """\
fedmuon: federated learning with Muon that converges on heterogeneous clients, and its rivals: FedAvg, SCAFFOLD,
LocalMuon and MuLoCo.

  fedmuon                                                    FedMuon on heterogeneous digits, in this process's workers
  fedmuon algorithm=scaffold partition.beta=10 rounds=50     any method, any key below
  fedmuon -m algorithm=fedmuon,localmuon seed=0,1            a sweep: every combination, a run a core

A run writes its folder (outputs/…, or hydra.run.dir=DIR); `fedmuon-report DIR` draws it, and `fedmuon resume=DIR` goes
on with it. `fedmuon … --cfg job` prints a run's whole configuration, `--hydra-help` has Hydra's own flags.
"""
GROUPS = ("algorithm", "dataset", "model", "task", "partition", "engine", "experiment")


def help_text() -> str:
    """The whole of it, from the files of conf/ and their comments."""
    parts = [INTRODUCTION, "Choices, as group=choice:"]
    for group in GROUPS:
        choices = ", ".join(names(group)) + (", paper/…" if group == "experiment" else "")
        parts.append(f"  {group:<11} {choices}")
    lines = (conf_dir() / "config.yaml").read_text().splitlines()
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("rounds:", "hydra:"))
    parts += ["", "Keys, with their values and what they mean (algorithm.lr=0.1 sets one):", ""]
    parts += ["  " + line if line.strip() else "" for line in lines[first:last]]
    for group in ("algorithm", "model"):
        parts += ["What each choice of " + group + " sets:"]
        for name in names(group):
            body = (conf_dir() / group / f"{name}.yaml").read_text().splitlines()
            said = " ".join(line.lstrip("# ") for line in body if line.startswith("#"))
            values = ", ".join(line.split("#")[0].strip() for line in body if line and line[0] not in "#_")
            parts.append(f"  {name:<14} {values.removeprefix(f'name: {name}, ')}  # {said}")
        parts.append("")
    return "\n".join(parts).rstrip()
