"""What smoothed models and their certificates share: how a text is changed at random, and what that guarantees."""
