"""Read tiers from engines beside Spark: Polars, Dask, Ray, Daft."""
