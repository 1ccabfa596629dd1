"""Backward passes, term by term: the sum is what one backward of the total would give."""

import pytest
import torch
from torch import Tensor, nn

from rosewood.protocol import Term
from rosewood.training.gradients import Gradients

WEIGHTS = {"ce": 0.5, "kl": 2.0, "anchor": 0.1, "probe": 0.0}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def terms(net: nn.Module, seed: int) -> list[Term]:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z = net(x)
    values = {"ce": z.logsumexp(1).mean(), "kl": (z**2).mean(), "anchor": net[0].weight.norm(), "probe": z[:, 0].std()}
    return [Term(name, values[name], weight) for name, weight in WEIGHTS.items()]


def accumulate(
    reads: dict[str, list[str]], names: list[str], micro_batches: int = 2
) -> tuple[nn.Module, Gradients, float]:
    net = model()
    gradients = Gradients(net, lambda loss: loss.backward())
    total = 0.0
    for seed in range(micro_batches):
        chosen = [term for term in terms(net, seed) if term.name in names]
        total += float(gradients.add(chosen, reads, micro_batches))
    gradients.finish()
    return net, gradients, total


def reference(names: list[str], only: str | None = None, micro_batches: int = 2) -> tuple[dict[str, Tensor], float]:
    net = model()
    total = torch.zeros((), dtype=torch.float64)
    for seed in range(micro_batches):
        for term in terms(net, seed):
            if term.name in names and only in (None, term.name):
                total = total + term.value * (term.weight if only is None else 1.0) / micro_batches
    total.backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}, float(total.detach())


EVERYTHING = ["0.weight", "0.bias", "2.weight", "2.bias"]
READS: list[dict[str, list[str]]] = [
    {},
    {"probe": ["0.weight"]},
    {"ce": ["2.weight"], "probe": ["0.weight"]},
    {"ce": ["0.weight"], "kl": ["0.weight"]},
    {term: ["0.weight"] for term in WEIGHTS},
]


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("names", [["ce"], ["ce", "probe"], ["ce", "kl"], list(WEIGHTS)])
def test_total_and_single_terms(reads: dict[str, list[str]], names: list[str]) -> None:
    reads = {name: wanted for name, wanted in reads.items() if name in names}
    net, gradients, total = accumulate(reads, names)
    expected, loss = reference(names)
    assert total == pytest.approx(loss)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    found = gradients.readings()
    clip = torch.tensor(0.25, dtype=torch.float64)
    for parameter in net.parameters():
        parameter.grad *= clip  # what clipping does before the selection reads
    factors = gradients.factors(clip, loss_scale=1.0)
    for term, wanted in reads.items():
        alone, _ = reference(names, only=term)
        for name in wanted:
            torch.testing.assert_close(found[term][name] * factors[term], alone[name] * clip)


def test_a_term_that_is_the_total_costs_no_copy() -> None:
    net, gradients, _ = accumulate({"ce": ["0.weight"]}, ["ce", "probe"])
    assert gradients.readings()["ce"]["0.weight"] is net[0].weight.grad


def test_a_probe_touches_no_gradient() -> None:
    with_probe, _, _ = accumulate({"probe": EVERYTHING}, ["ce", "probe"])
    without, _, _ = accumulate({}, ["ce"])
    for a, b in zip(with_probe.parameters(), without.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_clearing_forgets_the_terms() -> None:
    _, gradients, _ = accumulate({"probe": EVERYTHING}, ["ce", "probe"])
    gradients.clear()
    assert set(gradients.readings()) == {"total"}


@pytest.mark.parametrize("scaled", [True, False])
def test_the_loss_scale_is_undone(scaled: bool) -> None:
    net = model()
    gradients = Gradients(net, lambda loss: (loss * 8).backward(), lambda loss: loss * 8)
    probe = terms(net, 0)[-1]._replace(scaled=scaled)
    gradients.add([terms(net, 0)[0], probe], {"probe": EVERYTHING}, 1)
    one = torch.ones((), dtype=torch.float64)
    factor = gradients.factors(one, loss_scale=8.0)["probe"]
    expected, _ = reference(["probe"], only="probe", micro_batches=1)
    for name in EVERYTHING:
        torch.testing.assert_close(gradients.readings()["probe"][name] * factor, expected[name])
