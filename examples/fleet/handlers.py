"""Handlers of a host, served by `scheduler worker --handlers handlers`."""

from pydantic import BaseModel

from scheduler.client import Due, on_due


class Person(BaseModel):
    """The receiver of a greeting."""

    name: str


@on_due("greeting", Person)
def greet(due: Due[Person]) -> str:
    """Return a greeting, which is stored with the run."""
    return f"hello, {due.payload.name}"
