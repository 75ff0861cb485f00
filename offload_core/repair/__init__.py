"""Repairing a tier: indexes made anew, what damaged objects still hold saved, the rest put aside."""

from offload_core.repair.plan import Action, Choice
from offload_core.repair.quarantine import FOLDER as QUARANTINE
from offload_core.repair.repairing import PlannedRepair, Repair, Repaired

__all__ = ["QUARANTINE", "Action", "Choice", "PlannedRepair", "Repair", "Repaired"]
