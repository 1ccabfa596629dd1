from evaluation.conftest import make_model, tokenizer  # noqa: F401  fixtures
