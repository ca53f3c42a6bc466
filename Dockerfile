FROM python:3.11-slim

# Everything pinned and hashed; nothing is fetched that is not in constraints.txt.
WORKDIR /app
COPY constraints.txt .
RUN pip install --no-cache-dir --require-hashes -r constraints.txt
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY schemas schemas
COPY migrations migrations
COPY service service
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --create-home --uid 10001 crossrank \
 && mkdir /data /var/cache/crossrank && chown crossrank /data /var/cache/crossrank

USER crossrank
# Kernels are compiled into the image, so that no request waits for a compiler.
ENV NUMBA_CACHE_DIR=/var/cache/crossrank
RUN crossrank warmup
VOLUME /data
EXPOSE 4318 4317
# --insecure: anybody who reaches the port may do everything until there are tokens (crossrank token create). docker-compose.yml
# publishes the ports on this machine only.
CMD ["crossrank", "serve", "--data", "/data", "--host", "0.0.0.0", "--insecure"]
