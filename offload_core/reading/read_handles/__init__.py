"""Read single ledgers from their cold or hot copies, by the read priority."""

from offload_core.reading.read_handles.cold_reader import ColdReader, ColdReaders
from offload_core.reading.read_handles.read_memory import ReadMemory, process_memory
from offload_core.reading.read_handles.sparse_entries import SparseEntries
from offload_core.reading.read_handles.tiered import TieredReaders

__all__ = ["ColdReader", "ColdReaders", "ReadMemory", "SparseEntries", "TieredReaders", "process_memory"]
