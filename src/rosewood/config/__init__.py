"""Reading and checking what users write: registries, YAML, overrides, settings."""
