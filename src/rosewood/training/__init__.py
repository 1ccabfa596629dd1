"""The engine: one trainer that runs any recipe."""
