# syntax=docker/dockerfile:1
# One image for every process: `docker run IMAGE consumer`, `… producer`, `… migrate`.

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
# An environment without pip in it: the final image gets what runs, not what installs.
RUN python -m venv --without-pip /opt/scheduler
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY scheduler ./scheduler
COPY sql ./sql
COPY schemas ./schemas
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/scheduler/bin/python install --disable-pip-version-check -c constraints.txt '.[otel]'

FROM python:3.13-slim-bookworm
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="scheduler" \
      org.opencontainers.image.description="A reminder engine for RabbitMQ and Postgres: messages in, messages out, on time." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="python:3.13-slim-bookworm"
RUN groupadd --system --gid 10001 scheduler \
    && useradd --system --uid 10001 --gid scheduler --no-create-home --shell /usr/sbin/nologin scheduler \
    && python -m pip uninstall --yes --quiet --root-user-action=ignore pip
COPY --from=build /opt/scheduler /opt/scheduler
ENV PATH="/opt/scheduler/bin:${PATH}" \
    PYTHONUNBUFFERED=1
USER 10001:10001
# Metrics and health; nothing else listens.
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=6s --start-period=60s --start-interval=2s --retries=3 \
    CMD ["scheduler", "health"]
ENTRYPOINT ["scheduler"]
CMD ["--help"]
