"""Words of a text and what may replace them: lexicons, constraints, alignment with tokens, typos, noise."""
