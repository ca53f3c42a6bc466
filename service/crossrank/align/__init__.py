"""Clocks: from stamps of many wrong clocks to one timeline with stated bounds. Pure: arrays in, values out."""
