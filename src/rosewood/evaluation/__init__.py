"""How well a model does, and how sure it is, on clean, shifted, adversarial and noisy text."""
