"""Every kind of damage by its name: its scene, its change, and the findings that a verifier must report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tiers import TOPIC

from damage.scenes import LEDGER, Scene
from offload_core.maintenance.verify import Code

Place = Mapping[str, object]
"""The place that a finding must report: some of `topic`, `key`, `ledger_id`, `block`, `entry_id`, `offset`."""


Do = Callable[[Scene], Place | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A kind of damage.

    Attributes:
        scene: makes the sound scene.
        do: damages it, and returns the place; None for the first object, as that of `LEDGER`.
        code: the finding that must be reported there.
        also: findings that must be reported as a consequence, anywhere.
        deep: only the bytes of data objects show it.
    """

    name: str
    scene: Callable[[], Scene]
    do: Do
    code: Code
    also: frozenset[Code] = frozenset()
    deep: bool = False

    def make(self) -> tuple[Scene, Place]:
        """The damaged scene, and the place of the damage."""
        scene = self.scene()
        place = self.do(scene)
        if place is None:
            place = {"key": scene.key(), "ledger_id": LEDGER} | ({"topic": TOPIC} if scene.records else {})
        return scene, place


DAMAGES: dict[str, Damage] = {}


def add(name: str, scene: Callable[[], Scene], code: Code, do: Do, *also: Code, deep: bool = False):
    """Add a kind of damage; `_` in its name are `-` in the corpus."""
    name = name.replace("_", "-")
    assert name not in DAMAGES, name
    DAMAGES[name] = Damage(name=name, scene=scene, do=do, code=code, also=frozenset(also), deep=deep)


def damage(scene: Callable[[], Scene], code: Code, *also: Code, deep: bool = False) -> Callable[[Do], Do]:
    """The function below does this damage; it is called as the function is."""

    def take(do: Do) -> Do:
        add(do.__name__, scene, code, do, *also, deep=deep)
        return do

    return take


from damage import (  # noqa: E402 - they fill the corpus
    in_checksums,  # noqa: F401
    in_copies,  # noqa: F401
    in_data,  # noqa: F401
    in_indexes,  # noqa: F401
    in_mapfiles,  # noqa: F401
    in_records,  # noqa: F401
)
