from __future__ import annotations

import json
from pathlib import Path

import pytest

import cortiq
from builders.tiny import DATA
from cortiq.cli.main import main
from cortiq.convert import convert


@pytest.fixture
def model(tmp_path: Path) -> Path:
    convert(DATA / "llama", tmp_path / "model.cmf")
    return tmp_path / "model.cmf"


def test_the_last_line_is_the_path(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.cmf"
    assert main(["requant", str(model), "--quant", "vbit", "--mean-bits", "5", "-o", str(output)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{output}\n"
    assert "vbit_ro" in err
    with cortiq.open(output) as file:
        assert file.header.quant_type == "VBIT"


def test_in_place(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["requant", str(model), "--in-place", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == str(model)
    assert document["dtypes"]["q4tp"] > 0
    with cortiq.open(model) as file:
        assert file["model.layers.0.mlp.up_proj.weight"].dtype == "q4tp"


def test_an_interrupted_one_goes_on(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.cmf"

    def stops(_: object, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cortiq.cli.progress.Silent.update", stops)
        assert main(["requant", str(model), "-o", str(output), "--resume"]) == 130
    assert str(tmp_path / ".out.cmf.partial") in capsys.readouterr().err
    assert main(["requant", str(model), "-o", str(output), "--resume"]) == 0
    assert "from an interrupted attempt" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.cmf", "out.cmf"]


@pytest.mark.parametrize("where", [[], ["--in-place", "-o", "out.cmf"]])
def test_one_place_to_write_to(where: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["requant", str(model), *where]) == 2
    assert "--in-place" in capsys.readouterr().err


def test_route_statistics_and_bits_are_checked(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stats.json").write_text('{"0": [1, 2]}')
    wanted = ["--quant", "vbit", "-o", str(tmp_path / "out.cmf")]
    assert main(["requant", str(model), *wanted, "--route-stats", str(tmp_path / "none.json")]) == 2
    assert "route_stats" in capsys.readouterr().err
    assert main(["requant", str(model), *wanted, "--mean-bits", "9"]) == 2
    assert "mean_bits" in capsys.readouterr().err
    assert main(["requant", str(model), *wanted, "--route-stats", str(tmp_path / "stats.json")]) == 0
    with cortiq.open(tmp_path / "out.cmf") as file:
        assert file.header["provenance"]["requant"][0]["options"]["route_counts"] == {"0": (1, 2)}
