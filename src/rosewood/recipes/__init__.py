"""The published methods, one YAML file each."""
