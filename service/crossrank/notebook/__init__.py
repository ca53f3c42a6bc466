"""The same answers and figures from a notebook: `crossrank.Client(url)`."""
