from data.conftest import no_data_folder, reviews, write  # noqa: F401  fixtures
