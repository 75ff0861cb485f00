"""Read, write and look after Apache Pulsar's tiered storage, without a broker; `pulsar_offload` is its public API."""
