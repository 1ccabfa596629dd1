"""Curves of training, one line per run."""

from rosewood.report.figures.dynamics import training_curves
from rosewood.report.figures.style import PALETTE
from rosewood.results.run import Curve


def test_runs_of_a_method_share_its_colour() -> None:
    curves = {"a, seed 0": Curve([1, 2], [0.5, 0.4]), "a, seed 1": Curve([1], [0.6]), "<b>": Curve([1], [0.1])}
    figure = training_curves(curves, "dropout_kl", {"a, seed 0": 1, "a, seed 1": 1, "<b>": 2})
    assert [trace.line.color for trace in figure.data] == [PALETTE[1], PALETTE[1], PALETTE[2]]
    assert (list(figure.data[0].x), list(figure.data[0].y)) == ([1, 2], [0.5, 0.4])
    assert figure.layout.title.text == "dropout kl" and figure.data[2].name == "&lt;b&gt;"
    assert figure.layout.yaxis.exponentformat == "e", "a learning rate is 5e-5 and not 50µ"
