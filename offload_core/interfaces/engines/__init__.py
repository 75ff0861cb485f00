"""Read tiers from query engines: Spark, Polars, Dask, Ray, Daft."""
