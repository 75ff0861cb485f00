"""Repairing a tier: indexes made anew, what damaged objects still hold saved, the rest put aside; records corrected."""

from offload_core.repair.offloading_again import HotCopies
from offload_core.repair.quarantine import FOLDER as QUARANTINE
from offload_core.repair.repair_plan import Action, Choice, PlannedRepair, Repaired
from offload_core.repair.repairing import Repair

__all__ = ["QUARANTINE", "Action", "Choice", "HotCopies", "PlannedRepair", "Repair", "Repaired"]
