"""What a worker of `test_worker_imports` does: unpickle a reader and a task, read it, and say what that took.

Prints a line of JSON: the modules that were imported, the rows, and the kernels that were compiled.
"""

import json
import pickle
import sys

import pyarrow

pyarrow.array([0])  # imports pandas where it is installed, as PyArrow's first array does in every program
of_pyarrow = set(sys.modules)
reader, partition = pickle.loads(sys.stdin.buffer.read())

from numba.core import event  # noqa: E402 - only now: what the reader imports is what is measured

with event.install_recorder("numba:compile") as compiled:
    rows = sum(batch.num_rows for batch in reader.read(partition))

imported = sorted(set(sys.modules) - of_pyarrow)
print(json.dumps({"modules": imported, "rows": rows, "compiled": len(compiled.buffer) // 2}))
