"""Repair a tier: make indexes anew, save what damaged objects still hold, correct records."""

from offload_core.maintenance.repair.offloading_again import HotCopies
from offload_core.maintenance.repair.pair_changes import QUARANTINE
from offload_core.maintenance.repair.repair_plan import Action, PlannedRepair, Repaired
from offload_core.maintenance.repair.repairing import Repair

__all__ = ["QUARANTINE", "Action", "HotCopies", "PlannedRepair", "Repair", "Repaired"]
