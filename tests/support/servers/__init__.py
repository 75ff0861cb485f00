"""Real servers for the tests and the benchmarks: installed once into `.servers/`, started on loopback.

Each module here holds one server as a class with `start(folder)`, `stop()`, `kill()` and `restart()`.
"""
