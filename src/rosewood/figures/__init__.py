"""Figures: each file turns typed results into one Plotly figure; `save` writes it as page, data or picture."""
