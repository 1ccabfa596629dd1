"""A page on which a person types a sentence, sees what several runs say of it, and attacks it."""
