"""What perturbations share that change the words of a text."""
