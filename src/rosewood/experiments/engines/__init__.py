"""Where the cells of an experiment run: processes of this machine, or a Ray cluster."""
