"""Sketched gradients: the norm on average, exactly with all directions, linear, and never in the model's way."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2ForSequenceClassification
from transformers.pytorch_utils import Conv1D

from rosewood.protocol import Term
from rosewood.tensors.gradients import GradientSketch, sketch_problems
from rosewood.training.gradients import Gradients

TOKENS, WIDTH, HIDDEN = 6, 5, 8
NAMES = ["0.weight", "2.weight", "3.weight"]


def network(layer: Callable[[int, int], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(layer(WIDTH, HIDDEN), nn.Tanh(), layer(HIDDEN, WIDTH), nn.LayerNorm(WIDTH))
    return net.double()


def conv1d(inputs: int, outputs: int) -> nn.Module:
    return Conv1D(outputs, inputs)


def inputs(rows: int = 4) -> Tensor:
    return torch.randn(rows, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact_norms(net: nn.Sequential, x: Tensor) -> Tensor:
    parameters = dict(net.named_parameters())
    return torch.stack([g.norm() for g in torch.autograd.grad(loss(net, x), [parameters[name] for name in NAMES])])


def loss(net: nn.Sequential, x: Tensor) -> Tensor:
    return (net(x) ** 3).mean()


def sketched(net: nn.Sequential, x: Tensor, rank: int, seed: int) -> list[Tensor]:
    """Read as a selection reads it: matrices by their stand-ins, vectors by themselves."""
    sketch = GradientSketch(net, NAMES, rank, seeded(seed))
    gradients = Gradients(net, lambda value: value.backward())
    gradients.add([Term("probe", loss(net, x), 0.0, True, sketch.stand_ins)], {"probe": NAMES}, 1)
    sketch.undo()
    return [gradients.readings()["probe"][name] for name in NAMES]


@pytest.mark.parametrize("layer", [nn.Linear, conv1d])
@pytest.mark.parametrize("rank", [HIDDEN, 100])
def test_all_directions_give_the_norm(layer: Callable[[int, int], nn.Module], rank: int) -> None:
    net, x = network(layer), inputs()
    found = torch.stack([gradient.norm() for gradient in sketched(net, x, rank, seed=0)])
    torch.testing.assert_close(found, exact_norms(net, x), rtol=1e-12, atol=0)


@pytest.mark.parametrize("layer", [nn.Linear, conv1d])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_few_directions_give_the_squared_norm_on_average(layer: Callable[[int, int], nn.Module], rank: int) -> None:
    net, x = network(layer), inputs()
    draws = torch.stack([torch.stack([g.norm() ** 2 for g in sketched(net, x, rank, seed)]) for seed in range(300)])
    expected = exact_norms(net, x) ** 2
    error = (draws.mean(0) - expected).abs()
    standard_error = draws.std(0) / len(draws) ** 0.5
    assert (error[:2] < 4 * standard_error[:2]).all()
    assert (standard_error[:2] < 0.1 * expected[:2]).all(), "too few draws to tell anything"
    assert draws[:, 2].eq(draws[0, 2]).all(), "the norm's vector is read as it is"
    torch.testing.assert_close(draws[0, 2], expected[2], rtol=1e-12, atol=0)


def test_sketches_of_micro_batches_add_up_to_the_sketch_of_the_batch() -> None:
    net, x = network(nn.Linear), inputs(rows=8)
    sketch = GradientSketch(net, NAMES, 3, seeded(0))
    read = []
    for parts in (1, 4):
        gradients = Gradients(net, lambda value: value.backward())
        for part in x.chunk(parts):
            gradients.add([Term("probe", loss(net, part), 0.0, True, sketch.stand_ins)], {"probe": NAMES}, parts)
        read.append(gradients.readings()["probe"])
    for name in NAMES:
        torch.testing.assert_close(read[0][name], read[1][name], rtol=1e-12, atol=1e-15)


def test_a_layer_that_serves_twice_is_sketched_as_one() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(WIDTH, WIDTH).double()
    twice = nn.Sequential(layer, nn.Tanh(), layer)
    x = inputs()
    expected = torch.autograd.grad(loss(twice, x), layer.weight)[0].norm()
    sketch = GradientSketch(twice, ["0.weight"], WIDTH, seeded(0))
    found = torch.autograd.grad(loss(twice, x), sketch.stand_ins["0.weight"])[0].norm()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_the_model_computes_what_it_did_and_the_loss_has_the_same_gradients() -> None:
    net, x = network(nn.Linear), inputs()
    plain = torch.autograd.grad(loss(net, x), list(net.parameters()))
    output = net(x)
    sketch = GradientSketch(net, NAMES, 2, seeded(0))
    assert torch.equal(net(x), output)
    for one, other in zip(torch.autograd.grad(loss(net, x), list(net.parameters())), plain, strict=True):
        assert torch.equal(one, other)
    loss(net, x).backward()
    assert all(stand_in.grad is not None for stand_in in sketch.stand_ins.values())
    sketch.forget()
    assert all(stand_in.grad is None for stand_in in sketch.stand_ins.values())
    sketch.undo()
    assert not any(module._forward_hooks for module in net.modules())


def test_weight_gradients_are_never_formed() -> None:
    """Counted in floating-point operations, on layers so wide that a direction costs next to nothing."""
    net = nn.Sequential(*(nn.Linear(200, 200, bias=False) for _ in range(4)))
    x = torch.randn(50, 200)
    sketch = GradientSketch(net, [f"{i}.weight" for i in range(4)], 1, seeded(0))
    value = net(x).sum()
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(value, list(sketch.stand_ins.values()))
    through_three_layers = 3 * 2 * 50 * 200 * 200
    assert through_three_layers < counter.get_total_flops() < 1.05 * through_three_layers


def test_gpt2_can_be_sketched_and_other_matrices_are_refused() -> None:
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = GPT2ForSequenceClassification(config)
    names = [name for name, _ in model.named_parameters()]
    assert not sketch_problems(model, [name for name in names if ".h." in name], "sketch")
    assert sketch_problems(model, names, "selection.risk_sketch") == [
        "selection.risk_sketch sketches the weights of linear layers (nn.Linear, GPT-2's Conv1D) and reads vectors as "
        "they are; in GPT2ForSequenceClassification it can do neither with transformer.wte.weight, "
        "transformer.wpe.weight: leave it 0, or choose other candidates with selection.parameters"
    ]


def test_under_autocast_the_norm_is_near() -> None:
    net, x = network(nn.Linear).float(), inputs().float()
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.stack([gradient.norm() for gradient in sketched(net, x, HIDDEN, seed=0)])
    torch.testing.assert_close(found, exact_norms(net, x), rtol=0.05, atol=0)
