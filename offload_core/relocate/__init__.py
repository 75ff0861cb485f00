"""Moving cold copies to another tier or format: planned from records, copied, verified, switched."""

from offload_core.relocate.books import Book, MappingBook, RecordBook
from offload_core.relocate.model import How, Left, Move, TopicPlan
from offload_core.relocate.moving import Moved, Mover
from offload_core.relocate.planning import Wanted, plan_topic

__all__ = [
    "Book",
    "How",
    "Left",
    "MappingBook",
    "Move",
    "Moved",
    "Mover",
    "RecordBook",
    "TopicPlan",
    "Wanted",
    "plan_topic",
]
