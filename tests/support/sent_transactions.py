"""What the tests send to a broker in transactions: steps as `Transactions.java` takes them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

Step = dict[str, Any]


def steps() -> Iterator[Step]:
    """Twelve transactions of changing fate, interleaved with one another and with plain messages; then one stays open.

    Batches hold plain and transactional messages.
    """
    draw = random.Random(12)
    running: list[str] = []
    numbers = iter(range(10_000))
    for number in range(12):
        running.append(f"t{number}")
        yield {"messages": [message(running[-1], next(numbers))]}
        for _ in range(5):
            owner = draw.choice(running)
            owners = [draw.choice([None, owner]) for _ in range(draw.choice([1, 1, 3]))]
            yield {"messages": [message(each, next(numbers)) for each in owners]}
        if len(running) > 2:
            ended = running.pop(draw.randrange(len(running)))
            yield {draw.choice(["commit", "abort"]): ended}
    yield {"commit": running.pop()}
    stays_open = running.pop()
    for _ in range(3):
        yield {"messages": [message("late", next(numbers))]}
    yield {"messages": [message(stays_open, next(numbers))]}
    yield {"messages": [message(None, next(numbers))]}
    yield {"commit": "late"}


def message(transaction: str | None, number: int) -> Step:
    return {"value": f"m{number}"} | ({} if transaction is None else {"transaction": transaction})


def ended(planned: Sequence[Step]) -> list[Step]:
    """The same, and commits of all transactions that have no end in it."""
    names = {
        each["transaction"] for step in planned for each in step.get("messages", ()) if "transaction" in each
    }
    ends = {name for step in planned for name in (step.get("commit"), step.get("abort"))}
    return [*planned, *({"commit": name} for name in sorted(names - ends))]
