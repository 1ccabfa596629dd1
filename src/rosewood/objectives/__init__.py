"""What is minimised: one file an objective."""
