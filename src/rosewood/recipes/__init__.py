"""The methods, one YAML file each."""
