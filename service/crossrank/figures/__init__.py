"""Answers to pictures: one builder a figure, a plain plotly description out; the page and the notebook draw the same."""
