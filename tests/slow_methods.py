"""R-Drop, FreeLB, SMART, RoAST's perturbation, SAM and the others, written as plainly as possible for a tiny BERT.

Nothing here comes from the library: own forward passes through the parts of BERT, own divergences, own ascents. Each
method is a function from a model and a batch to the gradients of one training step. Random numbers are drawn in the
order in which the library draws them, so that the same seed gives the same dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy, log_softmax
from torch.nn.utils import clip_grad_norm_

from rose_oracle import undecayed
from tiny import Recording, TinyData, tiny_bert

Batch = dict[str, Tensor]
Gradients = dict[str, Tensor]
WORDS = "bert.embeddings.word_embeddings.weight"


class PaddedData(TinyData):
    """Sentences of 3 to 8 tokens, padded on the right."""

    def __getitem__(self, i: int) -> Batch:
        example = super().__getitem__(i)
        length = 3 + i % 6
        example["attention_mask"][length:] = 0
        example["input_ids"] = example["input_ids"] * example["attention_mask"]
        return example


def inputs(batch: Batch) -> Batch:
    return {key: value for key, value in batch.items() if key != "labels"}


def ce(logits: Tensor, batch: Batch) -> Tensor:
    return cross_entropy(logits, batch["labels"])


def kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q), a mean over the batch."""
    p, q = log_softmax(first, -1), log_softmax(second, -1)
    return (p.exp() * (p - q)).sum(-1).mean()


def symmetric(first: Tensor, second: Tensor) -> Tensor:
    return kl(first, second) + kl(second, first)


def gradients(model: Any, loss: Tensor) -> Gradients:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def summed(*parts: Gradients) -> Gradients:
    total: Gradients = {}
    for part in parts:
        for name, g in part.items():
            total[name] = total[name] + g if name in total else g
    return total


# The parts of BERT, one after the other.


def embedded(model: Any, batch: Batch) -> Tensor:
    return model.bert.embeddings(input_ids=batch["input_ids"])


def additive(batch: Batch, like: Tensor) -> Tensor:
    mask = batch["attention_mask"][:, None, None, :].to(like.dtype)
    return (1 - mask) * torch.finfo(like.dtype).min


def head(model: Any, hidden: Tensor) -> Tensor:
    return model.classifier(model.dropout(model.bert.pooler(hidden)))


def from_encoder(model: Any, hidden: Tensor, batch: Batch) -> Tensor:
    mask = additive(batch, hidden)
    return head(model, model.bert.encoder(hidden, attention_mask=mask).last_hidden_state)


def from_words(model: Any, words: Tensor, batch: Batch) -> Tensor:
    return model(inputs_embeds=words, attention_mask=batch["attention_mask"]).logits


def mask_of(batch: Batch) -> Tensor:
    return batch["attention_mask"].unsqueeze(-1).double()


# The methods.


def r_drop(model: Any, batch: Batch, clean: float, other: float, alpha: float, times: int = 1) -> Gradients:
    first, second = model(**inputs(batch)).logits, model(**inputs(batch)).logits
    loss = clean * ce(first, batch) + other * ce(second, batch) + alpha / 2 * symmetric(first, second) * times
    return gradients(model, loss)


def freelb(
    model: Any, batch: Batch, passes: int, adv_lr: float, magnitude: float, max_norm: float, deltas: list[Tensor]
) -> Gradients:
    matrix = model.bert.embeddings.word_embeddings.weight
    mask = mask_of(batch)
    rows, tokens = batch["input_ids"].shape
    delta = 2 * torch.rand(rows, tokens, 16, dtype=torch.float64) - 1
    lengths = batch["attention_mask"].sum(1)
    delta = delta * mask * (magnitude / (lengths * 16).double().sqrt())[:, None, None]
    total: Gradients = {}
    state = torch.get_rng_state()
    for k in range(passes):
        torch.set_rng_state(state)
        delta = delta.detach().requires_grad_()
        deltas.append(delta.detach())
        loss = ce(from_words(model, matrix[batch["input_ids"]] + delta, batch), batch) / passes
        (slope,) = torch.autograd.grad(loss, delta, retain_graph=True)
        total = summed(total, gradients(model, loss))
        if k + 1 == passes:
            break
        moved = []
        for i in range(rows):
            row = slope[i] * mask[i]
            new = delta[i].detach() + adv_lr * row / max(float((row**2).sum().sqrt()), 1e-8)
            norm = float((new**2).sum().sqrt())
            moved.append(new if norm <= max_norm else new * max_norm / norm)
        delta = torch.stack(moved)
    return total


def roast_perturbation(model: Any, batch: Batch, step: float = 0.1) -> Tensor:
    """Logits of the perturbed input; the clean pass comes before this."""
    mask = mask_of(batch)
    noise = torch.rand(*batch["input_ids"].shape, 16, dtype=torch.float64) * 1e-5 * mask
    e = embedded(model, batch).detach()
    delta = noise.clone().requires_grad_()
    loss = cross_entropy(from_encoder(model, e + delta, batch), batch["labels"], reduction="sum")
    (g,) = torch.autograd.grad(loss, delta)
    found = noise.clone()
    for i, j in torch.nonzero(batch["attention_mask"]).tolist():
        found[i, j] += step * g[i, j] / (g[i, j].abs().max() + 1e-8)
    embedded(model, batch)  # the library looks the words up once more, which draws dropout
    return from_encoder(model, e + found, batch)


def advembed(model: Any, batch: Batch, strength: float, perturbed: bool = True) -> Gradients:
    clean = model(**inputs(batch)).logits
    other = roast_perturbation(model, batch)
    loss = ce(clean, batch) / 2 + (ce(other, batch) / 2 if perturbed else 0)
    return gradients(model, loss + strength / 2 * symmetric(clean, other) * len(clean))


def smart(model: Any, batch: Batch, weight: float, eta: float, sigma: float, radius: float, steps: int) -> Gradients:
    clean = model(**inputs(batch)).logits
    mask = mask_of(batch)
    delta = torch.randn(*batch["input_ids"].shape, 16, dtype=torch.float64) * sigma * mask
    e = None
    for _ in range(steps):
        fresh = embedded(model, batch)
        e = fresh if e is None else e
        delta = delta.detach().requires_grad_()
        (g,) = torch.autograd.grad(symmetric(clean.detach(), from_encoder(model, e.detach() + delta, batch)), delta)
        moved = []
        for i in range(len(g)):
            row = g[i] * mask[i]
            moved.append((delta[i].detach() + eta * row / row.abs().max()).clamp(-radius, radius))
        delta = torch.stack(moved)
    embedded(model, batch)
    return gradients(model, ce(clean, batch) + weight * symmetric(clean, from_encoder(model, e + delta, batch)))


def mt_dnn(model: Any, batch: Batch, weight: float, eta: float, sigma: float, steps: int) -> Gradients:
    """SMART as its official code has it, element by element where that code has one tensor operation."""
    clean = model(**inputs(batch)).logits
    noise = torch.randn(*batch["input_ids"].shape, 16, dtype=torch.float64) * sigma
    e = embedded(model, batch)
    for _ in range(steps):
        noise = noise.detach().requires_grad_()
        # inputs_embeds are word vectors to BERT: positions and layer norm come on top of those that are in e.
        climbed = from_words(model, e.detach() + noise, batch)
        loss = torch.zeros((), dtype=torch.float64)
        for ours, theirs in zip(climbed.softmax(-1), clean.detach().softmax(-1), strict=True):
            for p, y in zip(ours, theirs, strict=True):
                rp = -math.log(1 / (p.item() + 1e-6) - 1 + 1e-6)
                ry = -math.log(1 / (y.item() + 1e-6) - 1 + 1e-6)
                loss = loss + p * (rp - ry) * 2
        (g,) = torch.autograd.grad(loss, noise)
        noise = noise.detach().clone()
        for i, j in torch.nonzero(batch["attention_mask"]).tolist():
            raised = noise[i, j] + eta * g[i, j]
            noise[i, j] = raised / (raised.abs().max() + 1e-6)
    other = from_words(model, e + noise, batch)
    return gradients(model, ce(clean, batch) + weight * (kl(other.detach(), clean) + kl(clean.detach(), other)))


def r3f(model: Any, batch: Batch, weight: float, radius: float) -> Gradients:
    clean = model(**inputs(batch)).logits
    noise = (2 * torch.rand(*batch["input_ids"].shape, 16, dtype=torch.float64) - 1) * radius
    words = model.bert.embeddings.word_embeddings.weight[batch["input_ids"]].detach()
    return gradients(model, ce(clean, batch) + weight * symmetric(clean, from_words(model, words + noise, batch)))


def worddrop(model: Any, batch: Batch, probability: float, strength: float) -> Gradients:
    clean = model(**inputs(batch)).logits
    kept = (torch.rand(batch["input_ids"].shape) >= probability) | (batch["attention_mask"] == 0)
    other = from_encoder(model, embedded(model, batch) * kept.unsqueeze(-1), batch)
    return gradients(model, ce(clean, batch) / 2 + strength / 2 * symmetric(clean, other) * len(clean))


def ascended(model: Any, gradient: Gradients, rho: float) -> Callable[[], None]:
    """Move the weights up; gives the way back."""
    moving = {name: g for name, g in gradient.items() if name != WORDS}
    norm = sum(float((g**2).sum()) for g in moving.values()) ** 0.5
    parameters = dict(model.named_parameters())
    before = {name: parameters[name].detach().clone() for name in moving}
    with torch.no_grad():
        for name, g in moving.items():
            parameters[name] += rho * g / (norm + 1e-12)

    def back() -> None:
        with torch.no_grad():
            for name, weight in before.items():
                parameters[name].copy_(weight)

    return back


def sam(model: Any, batch: Batch, rho: float) -> Gradients:
    back = ascended(model, gradients(model, ce(model(**inputs(batch)).logits, batch)), rho)
    found = gradients(model, ce(model(**inputs(batch)).logits, batch))
    back()
    return found


def advweight(model: Any, batch: Batch, rho: float, strength: float) -> Gradients:
    clean = model(**inputs(batch)).logits
    first = gradients(model, ce(clean, batch))
    back = ascended(model, first, rho)
    divergence = strength / 2 * symmetric(clean.detach(), model(**inputs(batch)).logits) * len(clean)
    second = gradients(model, divergence)
    back()
    return summed(first, second)


def hidden_cut(model: Any, batch: Batch, ratio: float) -> Gradients:
    clean = model(**inputs(batch)).logits
    other = with_cuts(model, batch, torch.rand(len(batch["labels"]), 2), ratio)
    p, q = log_softmax(clean, -1).exp(), log_softmax(other, -1).exp()
    m = (p + q) / 2
    js = ((m * (m / p).log()).sum(-1) + (m * (m / q).log()).sum(-1)).mean() / 2
    return gradients(model, ce(clean, batch) + ce(other, batch) + js)


def with_cuts(model: Any, batch: Batch, draws: Tensor, ratio: float) -> Tensor:
    hidden = embedded(model, batch)
    for number, layer in enumerate(model.bert.encoder.layer):
        own = layer.attention.self
        heads = [part(hidden).unflatten(-1, (2, 8)).transpose(1, 2) for part in (own.query, own.key, own.value)]
        scores = heads[0] @ heads[1].transpose(2, 3) / 8**0.5 + additive(batch, hidden)
        weights = scores.softmax(-1)
        mixed = functional.dropout(weights, own.dropout.p, model.training) @ heads[2]
        attended = layer.attention.output(mixed.transpose(1, 2).flatten(2), hidden)
        out = layer.output.dense(layer.intermediate(attended))
        layer.output.dropout(out)  # drawn and thrown away
        keep = torch.ones(out.shape[:2], dtype=out.dtype)
        for i, mask in enumerate(batch["attention_mask"]):
            length = int(mask.sum())
            received = weights[i, :, :length, :length].sum((0, 1)).tolist()
            ranked = sorted(range(length), key=lambda token: -received[token])[: max(int(0.4 * length), 1)]
            start = ranked[int(float(draws[i, number]) * len(ranked))]
            keep[i, start : min(start + max(int(ratio * length), 1), length)] = 0
        hidden = layer.output.LayerNorm(out * keep.unsqueeze(-1) + attended)
    return head(model, hidden)


# Training with them.


def replayed(trainer: Recording, method: Callable[[Any, Batch], Gradients], rate: float = 1e-3) -> dict[str, Tensor]:
    """The weights after the trainer's batches, with the method's gradients and torch's AdamW."""
    model = tiny_bert().train()
    plain = undecayed(name for name, _ in model.named_parameters())
    groups = [
        {"params": [p for n, p in model.named_parameters() if n not in plain], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if n in plain], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-6)
    steps = len(trainer.micro_batches)
    for step, (state, batch) in enumerate(trainer.micro_batches):
        torch.set_rng_state(state)
        found = method(model, batch)
        for name, parameter in model.named_parameters():
            parameter.grad = found.get(name)
        clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * (steps - step) / steps
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
