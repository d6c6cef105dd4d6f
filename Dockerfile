# Quire's image. For a GPU: `docker build -t quire:0.1.0 .`. For a CPU:
# `docker build --build-arg TORCH_VARIANT=cpu --build-arg TORCH_CPU_INDEX=… -t quire:0.1.0-cpu .`
# The chart under helm/ and docs/kubernetes.md depend on the user, home and ports set here.
ARG PYTHON_VERSION=3.12
# A tag moves; NAME:TAG@sha256:… does not. Release builds pass one.
ARG BASE_IMAGE=python:${PYTHON_VERSION}-slim-bookworm
ARG TORCH_VARIANT=cuda

# --- Quire's wheel
FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=requirements,target=/requirements \
    python3 -m venv --without-pip /build \
    && pip --python /build/bin/python install --no-deps --require-hashes \
        --requirement /requirements/locked/build.txt
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /build/bin/python wheel --no-deps --no-build-isolation --wheel-dir /dist .

# --- The base image of each variant
FROM ${BASE_IMAGE} AS base-cpu

FROM ${BASE_IMAGE} AS base-cuda
# Triton compiles the launchers of its kernels with a C compiler. The driver's libraries come from
# the node; the container runtime decides which GPUs are visible, hence no NVIDIA_VISIBLE_DEVICES.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
# hadolint ignore=DL3008  # Debian's archive keeps only the newest build of a version
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# --- The CPU's forward pass, compiled for every instruction set level
FROM base-cuda AS native
WORKDIR /src
COPY engine/__init__.py engine/
COPY engine/cpu engine/cpu
RUN python3 -m engine.cpu.library /native

# --- The image: one layer for torch, one for the other packages, a thin one for Quire
# hadolint ignore=DL3006  # a stage above, not an image
FROM base-${TORCH_VARIANT} AS quire

# Numeric ids, because Kubernetes can verify runAsNonRoot only for those.
RUN groupadd --gid 10001 quire \
    && useradd --uid 10001 --gid 10001 --create-home --home-dir /home/quire \
        --shell /usr/sbin/nologin quire \
    && python3 -m venv --without-pip /opt/quire

# Every package has its version and hashes in requirements/locked (`make lock`). The default package
# index has the CUDA build of torch. For the CPU build, pass the index of CPU builds from PyTorch's
# installation page, or a mirror of it.
ARG TORCH_VARIANT
ARG TORCH_CPU_INDEX=
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=requirements,target=/requirements \
    if [ "$TORCH_VARIANT" = cpu ]; then \
        set -- --index-url "${TORCH_CPU_INDEX:?name the index of CPU builds of torch}"; fi \
    && pip --python /opt/quire/bin/python install "$@" --no-deps --require-hashes \
        --requirement "/requirements/locked/torch-$TORCH_VARIANT.txt"
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=requirements,target=/requirements \
    pip --python /opt/quire/bin/python install --no-deps --require-hashes \
        --requirement /requirements/locked/packages.txt
COPY --from=native /native /opt/quire/native
# The last check fails if the locked packages do not satisfy pyproject.toml.
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    --mount=type=bind,source=requirements,target=/requirements \
    pip --python /opt/quire/bin/python install --no-cache-dir --no-deps /dist/*.whl \
    && pip --python /opt/quire/bin/python check \
    && python3 /requirements/sbom.py /opt/quire > /opt/quire/sbom.cdx.json

# The root may be read-only if /home/quire and /tmp are writable.
ENV PATH=/opt/quire/bin:$PATH \
    HOME=/home/quire \
    QUIRE_CPU_LIBRARY_DIR=/opt/quire/native \
    TRITON_CACHE_DIR=/home/quire/.cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/home/quire/.cache/inductor \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /home/quire
USER 10001:10001
EXPOSE 8000 8501
STOPSIGNAL SIGTERM

# /health/live succeeds before the model is loaded, so a slow load does not count as unhealthy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 \
    CMD ["python3", "-c", "import http.client, os, sys; server = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('QUIRE_PORT', '8000')), timeout=4); server.request('GET', '/health/live'); sys.exit(server.getresponse().status != 200)"]

# Last, so that another revision shares the layers above. The version is that of pyproject.toml.
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Quire" \
      org.opencontainers.image.description="An LLM server you can see through" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

ENTRYPOINT ["quire"]
CMD ["serve", "--host", "::"]
