"""Reading single ledgers: their cold copies, of any format."""

from offload_core.read_handles.memory import ReadMemory, process_memory
from offload_core.read_handles.opening import ColdReaders
from offload_core.read_handles.reader import ColdReader
from offload_core.read_handles.sparse_entries import SparseEntries

__all__ = ["ColdReader", "ColdReaders", "ReadMemory", "SparseEntries", "process_memory"]
