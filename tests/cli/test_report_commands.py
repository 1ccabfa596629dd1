"""rosewood report and rosewood card, as a person would type them."""

from pathlib import Path

from cli.conftest import Rosewood
from reported_runs import landscape, write_run


def test_a_report_is_one_file(rosewood: Rosewood, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, name) for name in ("vanilla", "rose")]
    page = tmp_path / "pages" / "report.html"
    assert f"The report is in {page}" in rosewood("report", *runs, "--output", page, "--title", "Ours")
    text = page.read_text()
    assert "<title>Ours</title>" in text and "rose cannot be shown to differ from vanilla" in text
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    page.write_text("by hand")
    assert f"{page} exists: add --overwrite" in rosewood("report", *runs, "--output", page, code=1).replace("\n", "")
    assert page.read_text() == "by hand"
    rosewood("report", *runs, "--output", page, "--overwrite")
    assert "<title>" in page.read_text()


def test_a_landscape_is_named_by_its_folder(rosewood: Rosewood, tmp_path: Path) -> None:
    run, folder = write_run(tmp_path / "run"), tmp_path / "landscapes"
    words = ("report", run, "--landscape", folder, "--output", tmp_path / "r.html")
    assert "compute them with rosewood landscape RUN" in rosewood(*words, code=1)
    assert not (tmp_path / "r.html").exists()
    landscape("run").save(folder / "run.json")
    rosewood(*words)
    assert "Sharpness: own, test, 8 examples" in (tmp_path / "r.html").read_text()


def test_what_cannot_be_reported_is_refused(rosewood: Rosewood, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "expected --output to end in .html, got report.pdf" in rosewood("report", run, "-o", "report.pdf", code=1)
    assert "no run was trained with smart" in rosewood(
        "report", run, "-o", tmp_path / "r.html", "--baseline", "smart", code=1
    )
    (run / "evaluation.json").unlink()
    assert f"rosewood evaluate {run}" in rosewood("report", run, "-o", tmp_path / "r.html", code=1)
    assert not (tmp_path / "r.html").exists()


def test_a_card_is_written_beside_the_model_and_never_over_another(rosewood: Rosewood, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    card = run / "model" / "README.md"
    assert f"The card is in {card}" in rosewood("card", run)
    card.write_text("by hand")
    assert "exists, and may have been written by hand: add --overwrite" in rosewood("card", run, code=1)
    assert card.read_text() == "by hand"
    rosewood("card", run, "--overwrite")
    assert card.read_text().startswith("---\n")
