"""The job of `test_daft`: reads a tier by options, twice and in parts; its rows go to files of Arrow.

Arguments: the tier, the folder for the files, and the options of each read by name as JSON.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

from offload_hooks.errors import OptionError
from pulsar_offload import read_daft

tier, folder, reads = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
for name, options in reads.items():
    table = read_daft(tier, **options).to_arrow()
    with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)

topic = read_daft(tier, "acme/cold/nobatch")
print(topic.where(topic["__entryId"] < 3).select("__ledgerId").count_rows(), topic.limit(2).count_rows())
print(topic.select("__entryId").limit(2).to_pydict())
try:
    read_daft(tier, isolation="x")
except OptionError as error:
    print(error)
