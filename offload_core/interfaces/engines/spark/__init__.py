"""Read tiers from Spark: the PySpark data source `pulsar_offload`, and `read_offloaded` for every Spark from 3.5 on."""
