"""Reaching into a model: its sites, dropout, adapters, pre-trained part, and which parameters may be chosen."""
