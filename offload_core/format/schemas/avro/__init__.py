"""AVRO: datums of a batch to Arrow columns, by a program of the writer's and the reader's schema."""
