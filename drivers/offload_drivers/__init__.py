"""Built-in drivers of pulsar-offload; each is found through its entry point, like anybody else's."""
