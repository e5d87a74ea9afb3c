"""Handlers of a host, served by `scheduler worker --handlers handlers`."""

from pydantic import BaseModel

from scheduler.client import Due, on_due


class Person(BaseModel):
    """Who is greeted."""

    name: str


@on_due("greeting", Person)
def greet(due: Due[Person]) -> str:
    """Greet a person; what is returned is kept with the run."""
    return f"hello, {due.payload.name}"
