"""How a defence is chosen by name, given what it needs, and put around a model or a run."""
