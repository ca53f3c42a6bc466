"""The host agent: what the machine under the ranks does, as metrics at 1 Hz. `crossrank-agent --help`."""
