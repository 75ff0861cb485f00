"""A corpus of damage: named kinds of it, made from sound objects and records, each with the findings to report."""

from damage.corpus import DAMAGES, Damage
from damage.scenes import SCENES, Scene

__all__ = ["DAMAGES", "SCENES", "Damage", "Scene"]
