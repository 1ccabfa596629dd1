"""Many models: figures by method, statistical tests, and tables."""
