"""One question a file: (what is known of the job, parameters) -> the answer as plain values, shaped as DESIGN names them."""
