"""Serve people and programs: the command line, the REST service, Spark and other engines."""
