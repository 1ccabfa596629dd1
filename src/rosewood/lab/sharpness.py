"""How sharp a minimum is: the loss along directions through weight space, its basin, and its extreme curvatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from rosewood.errors import RunError
from rosewood.models.modes import evaluating
from rosewood.results import Count, ResultPart
from rosewood.tensors.shards import Flat, flat_like

RAYS = 360
STEPS_ALONG_A_RAY = 200


class Eigenvalue(ResultPart):
    """An extreme eigenvalue of the loss's Hessian; one lies within `residual` of the value, converged or not."""

    value: float
    residual: float
    products: Count  # Hessian-vector products
    converged: bool


class Sharpness(ResultPart):
    """The figures of one minimum; None where a loss was not finite, or where nothing was computed."""

    radius: float
    mean_rise: float | None  # of the loss, from the centre to the circle of that radius
    threshold: float
    basin_area: float | None  # around the centre, where the loss has risen by less than the threshold
    basin_is_cut: bool | None  # whether the basin reaches the border of the landscape, so that it may be larger
    top_eigenvalue: Eigenvalue | None = None  # the largest
    bottom_eigenvalue: Eigenvalue | None = None  # the smallest; None in files of older versions


class Surface:
    """The loss between the points of a square grid around the centre, by a cubic spline through them all."""

    def __init__(self, coordinates: Sequence[float], losses: Sequence[Sequence[float]]) -> None:
        degree = min(3, len(coordinates) - 1)
        self._spline = RectBivariateSpline(coordinates, coordinates, np.array(losses), kx=degree, ky=degree, s=0)
        self.radius = max(coordinates)
        middle = len(coordinates) // 2
        self._centre = losses[middle][middle]
        self._angles = 2 * np.pi * np.arange(RAYS) / RAYS

    def rise(self, angle: NDArray[np.float64] | float, distance: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How much more the loss is there than in the centre."""
        at = self._spline.ev(distance * np.cos(angle), distance * np.sin(angle))
        return np.asarray(at - self._centre, dtype=np.float64)

    def mean_rise(self, radius: float) -> float:
        """The mean over a circle."""
        return float(self.rise(self._angles, radius).mean())

    def basin(self, threshold: float) -> tuple[float, bool]:
        """The area that is seen from the centre below the threshold, and whether the border of the grid cuts it."""
        reach = self.radius / np.maximum(abs(np.cos(self._angles)), abs(np.sin(self._angles)))
        ends = [self._end(angle, far, threshold) for angle, far in zip(self._angles, reach, strict=True)]
        distances = np.array([far if end is None else end for end, far in zip(ends, reach, strict=True)])
        return float((distances**2).sum() * np.pi / RAYS), None in ends

    def _end(self, angle: float, far: float, threshold: float) -> float | None:
        """Where the loss first passes the threshold on the way out, if it does."""
        places = np.linspace(0, far, STEPS_ALONG_A_RAY + 1)
        above = np.flatnonzero(self.rise(angle, places) > threshold)
        if not len(above):
            return None
        low, high = places[above[0] - 1], places[above[0]]
        return float(brentq(lambda place: float(self.rise(angle, place)) - threshold, low, high, xtol=1e-14))


def sharpness_of(
    coordinates: Sequence[float],
    losses: Sequence[Sequence[float]],
    threshold: float,
    eigenvalues: tuple[Eigenvalue, Eigenvalue] | None,
) -> Sharpness:
    """The figures that a landscape gives, at its own radius, beside the eigenvalues that it does not."""
    top, bottom = eigenvalues or (None, None)
    surface = Surface(coordinates, losses) if np.isfinite(losses).all() else None
    area, cut = (None, None) if surface is None else surface.basin(threshold)
    return Sharpness(
        radius=max(coordinates),
        mean_rise=None if surface is None else surface.mean_rise(surface.radius),
        threshold=threshold,
        basin_area=area,
        basin_is_cut=cut,
        top_eigenvalue=top,
        bottom_eigenvalue=bottom,
    )


def extreme_eigenvalues(
    model: nn.Module,
    shares: Callable[[], Iterable[Tensor]],
    iterations: int = 20,
    tolerance: float = 0.01,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> tuple[Eigenvalue, Eigenvalue]:
    """The largest and the smallest eigenvalue of the Hessian of a loss, by power iteration, in evaluation mode.

    The iteration finds the eigenvalue of largest size, whatever its sign; a second one, on the spectrum shifted by it,
    finds the other end. Three buffers of the size of the weights: the vector, the gradient and their product.

    Args:
        model: the model whose weights the loss depends on.
        shares: gives what each batch adds to the loss, such as `FixedLoss.shares`.
        iterations: products of the Hessian and a vector, at most, for each end.
        tolerance: an end is found when the residual of its eigenvector is below this times the first value.
        seed: of the vectors that the iterations start from.
        advance: called after each product.

    Returns:
        The two ends, each with its residual and whether it has converged.

    Example:
        >>> weight = torch.nn.Linear(2, 1, bias=False)
        >>> curved = lambda: [weight.weight[0, 0] ** 2 - 2 * weight.weight[0, 1] ** 2]
        >>> largest, smallest = extreme_eigenvalues(weight, curved, iterations=100)
        >>> round(largest.value, 2), round(smallest.value, 2)
        (2.0, -4.0)
    """
    with evaluating(model), _differentiable(model) as parameters:
        vector = flat_like(parameters)
        ends: list[Eigenvalue] = []
        for place in range(2):
            _randomise(vector, seed + place)
            shift = -ends[0].value if ends else 0.0
            for product in range(1, iterations + 1):
                value, residual = _iterate(parameters, shares, vector, shift)
                advance()
                converged = residual <= tolerance * abs(ends[0].value if ends else value)
                if converged or product == iterations:
                    ends.append(Eigenvalue(value=value, residual=residual, products=product, converged=converged))
                    break
    smallest, largest = sorted(ends, key=lambda each: each.value)
    return largest, smallest


@contextmanager
def _differentiable(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Inside, every weight has a gradient of its own to write to; afterwards those there were are back."""
    parameters = weights_of(model)
    before = [(parameter, parameter.requires_grad, parameter.grad) for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = None
            parameter.requires_grad_(True)
        # The fast attention kernels cannot be differentiated twice.
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield parameters
    finally:
        for parameter, learns, grad in before:
            parameter.requires_grad_(learns)
            parameter.grad = grad


@torch.no_grad()
def _randomise(vector: Flat, seed: int) -> None:
    """A random vector of length 1."""
    generator = torch.Generator().manual_seed(seed)
    for piece in vector.pieces:
        piece.copy_(torch.randn(piece.shape, generator=generator, dtype=piece.dtype))
    vector.whole.div_(vector.whole.norm())


def _iterate(
    parameters: Sequence[nn.Parameter], shares: Callable[[], Iterable[Tensor]], vector: Flat, shift: float
) -> tuple[float, float]:
    """One step: the Rayleigh quotient and the residual of the vector, which then becomes (H + shift) vector."""
    _write_product(parameters, shares, vector)
    with torch.no_grad():
        products = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        pairs = zip(vector.pieces, products, strict=True)
        value = float(torch.stack([torch.dot(v.flatten(), h.flatten()) for v, h in pairs]).sum())
        torch._foreach_add_(products, vector.pieces, alpha=-value)
        residual = float(torch.stack([product.norm() for product in products]).norm())
        vector.whole.mul_(value + shift)
        torch._foreach_add_(vector.pieces, products)
        vector.whole.div_(vector.whole.norm())
    return value, residual


def _write_product(parameters: Sequence[nn.Parameter], shares: Callable[[], Iterable[Tensor]], vector: Flat) -> None:
    """The Hessian times the vector, as the parameters' gradients, batch after batch."""
    for parameter in parameters:
        parameter.grad = None
    for share in shares():
        gradients = torch.autograd.grad(share, parameters, create_graph=True, allow_unused=True)
        pairs = [(g, v) for g, v in zip(gradients, vector.pieces, strict=True) if g is not None and g.requires_grad]
        if pairs:
            along = torch.stack([torch.dot(g.flatten(), v.flatten()) for g, v in pairs]).sum()
            torch.autograd.backward(along, inputs=list(parameters))


Normalisation = Literal["filter", "whole"]
TINY = 1e-10


@torch.no_grad()
def random_directions(
    model: nn.Module, count: int = 2, seed: int = 0, normalisation: Normalisation = "filter"
) -> list[Flat]:
    """Gaussian directions; models with the same shapes get the same ones, each scaled by its own weights.

    `filter`: each row of a tensor with two axes or more gets the norm of the weights' row, and tensors with one axis
    (biases, layer norms) do not move (Li et al., NeurIPS 2018, "Visualizing the Loss Landscape of Neural Nets").
    `whole`: the direction as one vector gets the norm of all weights as one vector, which is how ROSE's formula reads;
    its text names the former.
    """
    weights = [parameter.data for parameter in weights_of(model)]
    generator = torch.Generator().manual_seed(seed)  # of the processor: the same numbers on every device
    return [_direction(weights, generator, normalisation) for _ in range(count)]


def _direction(weights: Sequence[Tensor], generator: torch.Generator, normalisation: Normalisation) -> Flat:
    direction = flat_like(weights)
    for piece in direction.pieces:
        piece.copy_(torch.randn(piece.shape, generator=generator, dtype=piece.dtype))
    if normalisation == "whole":
        norm = torch.stack([weight.norm() for weight in weights]).norm()
        direction.whole.mul_(norm / (direction.whole.norm() + TINY))
    else:
        for piece, weight in zip(direction.pieces, weights, strict=True):
            _scale_rows(piece, weight)
    return direction


def _scale_rows(piece: Tensor, weight: Tensor) -> None:
    if weight.dim() < 2:
        piece.zero_()
        return
    rows = piece.flatten(1)
    rows.mul_((weight.flatten(1).norm(dim=1) / (rows.norm(dim=1) + TINY)).unsqueeze(1))


class Excursion:
    """The weights of a model in one flat buffer that may be written; those it had at home are not touched."""

    def __init__(self, home: Sequence[Tensor], here: Flat) -> None:
        self._home, self._here = list(home), here

    def go(self, directions: Sequence[Flat], steps: Sequence[float]) -> None:
        """To home + the sum of each step times its direction, from home and not from the last place."""
        torch._foreach_copy_(self._here.pieces, self._home)
        for direction, step in zip(directions, steps, strict=True):
            self._here.whole.add_(direction.whole, alpha=step)

    def go_between(self, other: Sequence[Tensor], share: float) -> None:
        """To (1 - share) home + share other: exactly home at 0, and exactly the other at 1."""
        torch._foreach_copy_(self._here.pieces, self._home)
        torch._foreach_lerp_(self._here.pieces, list(other), share)


@contextmanager
def excursion(model: nn.Module) -> Iterator[Excursion]:
    """Inside, the model computes with weights that may be moved; however it ends, they are as they were.

    The model's own tensors are put aside, not copied, so going back needs no arithmetic. This takes one buffer of the
    size of the weights; tied weights are in it once.
    """
    parameters = weights_of(model)
    home = [parameter.data for parameter in parameters]
    with torch.no_grad():
        here = flat_like(home)
        trip = Excursion(home, here)
        trip.go([], [])
        try:
            for parameter, piece in zip(parameters, here.pieces, strict=True):
                parameter.data = piece
            yield trip
        finally:
            for parameter, own in zip(parameters, home, strict=True):
                parameter.data = own


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    """Every parameter once, refused if small steps would be lost to rounding."""
    parameters = list(model.parameters())
    types = {parameter.dtype for parameter in parameters}
    if len(types) != 1 or not types <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(str(each).removeprefix("torch.") for each in types)) or "no weights"
        raise RunError(
            f"expected a model whose weights are all float32 or all float64, got {found}: call model.float()"
        )
    return parameters
