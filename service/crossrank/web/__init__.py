"""The page: static files and their headers, and nothing that computes."""
