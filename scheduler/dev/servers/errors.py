"""Errors of starting and stopping servers."""

from collections.abc import Iterable

from scheduler.domain.errors import Misconfigured


class ServersMissing(Misconfigured):
    """Postgres or RabbitMQ is missing and cannot be installed."""

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(_advice(self.missing))


class ServerFailed(Misconfigured):
    """A server or one of its tools failed."""


def _advice(missing: tuple[str, ...]) -> str:
    debian = {"PostgreSQL": "postgresql", "RabbitMQ": "rabbitmq-server"}
    fedora = {"PostgreSQL": "postgresql-server", "RabbitMQ": "rabbitmq-server"}
    brew = {"PostgreSQL": "postgresql@16", "RabbitMQ": "rabbitmq"}
    docker = {
        "PostgreSQL": "docker run -d -p 127.0.0.1:5432:5432 -e POSTGRES_PASSWORD=dev postgres:16\n"
        "                  export DATABASE_URL=postgresql://postgres:dev@127.0.0.1:5432/postgres",
        "RabbitMQ": "docker run -d -p 127.0.0.1:5672:5672 -p 127.0.0.1:15672:15672 rabbitmq:3.13-management\n"
        "                  export AMQP_URL=amqp://guest:guest@127.0.0.1:5672/%2F",
    }
    lines = [
        f"{' and '.join(missing)} not found on this machine, and there is no Docker engine. Choose one:",
        f"  Debian, Ubuntu  sudo apt-get update && sudo apt-get install -y {_names(debian, missing)}",
        f"  Fedora          sudo dnf install -y {_names(fedora, missing)}",
        f"  macOS           brew install {_names(brew, missing)}",
        "  Docker          install the wheel with its extra containers, start the engine, run this again; or:",
        *(f"                  {docker[name]}" for name in missing),
    ]
    return "\n".join(lines)


def _names(packages: dict[str, str], missing: tuple[str, ...]) -> str:
    return " ".join(packages[name] for name in missing)
