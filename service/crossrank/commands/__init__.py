"""The commands behind the `crossrank` program, one a file: each fetches, does one thing, and prints it.

They talk to the service over HTTP, or open a data folder in this process, through one small interface (`source.Answers`).
Fetching and rendering are separate functions, so that what is printed can be tested without a service.
"""
