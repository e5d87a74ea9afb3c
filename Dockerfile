# syntax=docker/dockerfile:1
# One image for every process: `docker run IMAGE consumer`, `… producer`, `… worker`, `… api`, `… migrate`.

FROM python:3.13.7-slim-bookworm AS build
WORKDIR /src
# An environment without pip: the final image contains only runtime files.
RUN python -m venv --without-pip /opt/scheduler
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
COPY scheduler ./scheduler
COPY sql ./sql
COPY schemas ./schemas
# Every package, including the build backend, is verified by its hash.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --require-hashes -r requirements/build.txt \
    && pip --python /opt/scheduler/bin/python install --disable-pip-version-check --require-hashes -r requirements/run.txt \
    && pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/scheduler/bin/python install --disable-pip-version-check --no-deps /wheels/*.whl

FROM python:3.13.7-slim-bookworm
# `scheduler --version` shows the release, REVISION the commit: --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="scheduler" \
      org.opencontainers.image.description="A reminder engine for RabbitMQ and Postgres: messages in, messages out, on time." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="python:3.13.7-slim-bookworm"
# Not --system: its ids end at 999; this id must not belong to a user of the host.
RUN groupadd --gid 10001 scheduler \
    && useradd --uid 10001 --gid scheduler --no-log-init --no-create-home --home-dir /tmp \
       --shell /usr/sbin/nologin scheduler \
    && python -m pip uninstall --yes --quiet --root-user-action=ignore pip
COPY --from=build /opt/scheduler /opt/scheduler
ENV PATH="/opt/scheduler/bin:${PATH}" \
    PYTHONUNBUFFERED=1
USER 10001:10001
# 8000: metrics and health. 8080: the API and the console, if API_HOST allows access.
EXPOSE 8000 8080
STOPSIGNAL SIGTERM
# No --start-interval: Debian 12's buildah and podman do not support it.
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 \
    CMD ["scheduler", "health"]
ENTRYPOINT ["scheduler"]
CMD ["--help"]
