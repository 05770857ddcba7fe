"""The wheel and the FAB carry conf/, and what is installed from the wheel can stage a FAB of its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fedmuon_app.config import conf_dir

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CONF = {str(file.relative_to(conf_dir().parent)) for file in conf_dir().rglob("*.yaml")}


def python(*words: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out)
    (file,) = out.glob("*.whl")
    return file


def test_the_wheel_carries_conf(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"fedmuon_app/{name}" for name in CONF} <= names
    assert {"fedmuon_app/pyproject.toml", "fedmuon_app/report/page.html"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_the_fab_carries_conf_and_the_package(tmp_path: Path) -> None:
    from fedmuon_app.engines.superlink import stage_app

    app = stage_app(tmp_path / "app")
    flwr = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(app)]
    subprocess.run(flwr, cwd=tmp_path, env=os.environ | {"FLWR_HOME": str(tmp_path)}, check=True, capture_output=True)
    (fab,) = tmp_path.glob("*.fab")
    names = set(zipfile.ZipFile(fab).namelist())
    assert names >= CONF
    assert "fedmuon_app/flower/server_app.py" in names


def test_what_the_wheel_installs_runs_and_stages(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    small = ["rounds=1", "local.steps=1", "hydra.run.dir=run"]
    out = python("-P", "-m", "fedmuon_app", *small, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert "round 1/1" in out
    script = (
        "import sys; from pathlib import Path; import fedmuon_app.engines.superlink as s;"
        "assert 'site' in s.__file__; s.stage_app(Path('app'))"
    )
    python("-P", "-c", script, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    staged = {str(file.relative_to(tmp_path / "app")) for file in (tmp_path / "app").rglob("*") if file.is_file()}
    assert staged >= CONF | {"pyproject.toml", "fedmuon_app/cli.py"}
    assert not [name for name in staged if name.startswith("fedmuon_app/conf/")]
