"""The part of `make demo` that shows the operator's toolbox, run as the demo runs it, but for processes."""

import sys
from contextlib import closing
from pathlib import Path

from tiers import lay_out_broker_objects

from offload_core.metadata.stores import open_metadata_store

ROOT = Path(__file__).parents[2]


def test_the_demo_of_the_toolbox_ends_as_it_says(offload, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import toolbox

    tier, shown = tmp_path / "tier", dict[str, str]()
    lay_out_broker_objects(tier, ["json", "jstring"])

    def run(*arguments, code=0):
        result = offload(*arguments)
        assert result.code == code, result.out + result.err
        shown[arguments[0]] = result.out

    before = {path.name: path.read_bytes() for path in tier.glob("*-ledger-*") if path.suffix != ".json"}
    toolbox.run(tier, tmp_path, run, lambda _: None)
    assert {name: (tier / name).read_bytes() for name in before} == before
    assert "1 damaged, 1 repaired" in shown["repair"]
    assert "acme/cold/json" in shown["cost"]
    assert "<html" in (tmp_path / "report.html").read_text()[:1000]

    url = f"sqlite:{tmp_path}/records.db"
    with closing(open_metadata_store(url, {"create": True})) as store:
        store.put("/managed-ledgers/demo/cold/persistent/orders", b"", None)
    toolbox.find_garbage(tier, url, run, lambda _: None)
    assert "deleted-topic" in shown["gc"]
    sys.modules.pop("toolbox")
