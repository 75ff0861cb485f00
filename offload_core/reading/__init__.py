"""Read topics: scans, exports, read handles, transaction buffers, schema providers."""
