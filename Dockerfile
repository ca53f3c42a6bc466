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
 && mkdir /data && chown crossrank /data

USER crossrank
# Compiled kernels are kept beside the data, so that a restarted container starts quickly.
ENV NUMBA_CACHE_DIR=/data/.numba
VOLUME /data
EXPOSE 4318
# There is no authentication yet: publish the port to trusted networks only (docker-compose.yml keeps it on this machine).
CMD ["crossrank", "serve", "--data", "/data", "--host", "0.0.0.0", "--insecure"]
