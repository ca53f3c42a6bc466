"""The program that reads one untrusted Parquet file, in a process of its own with hard limits, and prints it as an Arrow stream.

A Parquet reader trusts lengths and offsets in the file; a crafted one may make it allocate without bound or crash. Here that
costs this process only. What comes out is a plain Arrow stream, which the parent validates in full before it uses it.

Standard input is the file; the arguments are the most rows that are read and the names of the columns wanted.
"""

from __future__ import annotations

import os
import resource
import sys

import pyarrow as pa
import pyarrow.parquet as pq

MEMORY_BYTES = 4 << 30
CPU_S = 600
BATCH_ROWS = 32_768
EXIT_REFUSED = 3


def main() -> None:
    """Exits with EXIT_REFUSED and one line on stderr for a file that cannot be read."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most_rows, wanted = int(sys.argv[1]), sys.argv[2:]
    pa.set_cpu_count(1)
    try:
        file = pq.ParquetFile(os.fdopen(0, "rb"))
        if file.metadata.num_rows > most_rows:
            refuse(f"it has {file.metadata.num_rows} rows, at most {most_rows} are read")
        columns = [name for name in file.schema_arrow.names if name in wanted]
        schema = pa.schema([plain(file.schema_arrow.field(name)) for name in columns])
        with os.fdopen(1, "wb") as out, pa.ipc.new_stream(out, schema) as writer:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                writer.write_batch(batch.select(columns).cast(schema))
    except (pa.ArrowException, OSError, ValueError, KeyError) as fault:
        refuse(str(fault))
    except MemoryError:
        refuse("it needs more memory than is allowed")


def plain(field: pa.Field) -> pa.Field:
    """The field without dictionaries, which could refer to anything, and without metadata."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def refuse(reason: str) -> None:
    """Ends the program."""
    sys.stderr.write(reason[:500])
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
