from analysis_bits import make_run  # noqa: F401  a fixture
