from tiny_losses import make_run  # noqa: F401  a fixture
