"""What Python shows at a prompt and in notebooks: a few lines, whatever a tier holds, and nothing that is markup."""

from entries import entry, pip17_object
from tiers import Names, lay_out

from offload_core.metadata.catalogue import open_tier
from offload_core.metadata.catalogue.summaries import bytes_text
from pulsar_offload import scan

LEDGER = pip17_object([entry(b"x")] * 5)


def lay_out_topics(root, *topics):
    for number, topic in enumerate(topics):
        names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
        lay_out(root, LEDGER, attempt=number, names=names)


def test_a_tier_a_catalogue_and_a_topic_show_names_and_numbers(tmp_path):
    lay_out_topics(tmp_path, "orders", "users")
    tier = open_tier(tmp_path)
    assert repr(tier) == f"TierReader(<Tier local at file://{tmp_path}>)"
    assert tier.topics() == ("persistent://acme/cold/orders", "persistent://acme/cold/users")
    size = bytes_text(len(LEDGER.data))
    shown = repr(tier.catalogue()).splitlines()
    assert shown[0] == f"Catalogue of 2 topics, {bytes_text(2 * len(LEDGER.data))}, 0 problems"
    assert shown[1:] == [f"  acme/cold/{name}: 1 ledger, 5 entries, {size}" for name in ("orders", "users")]
    assert repr(tier.catalogue().topics[0]) == f"<Topic acme/cold/orders: 1 ledger, 5 entries, {size}>"


def test_of_many_topics_the_first_are_shown(tmp_path):
    lay_out_topics(tmp_path, *(f"t{number:02}" for number in range(30)))
    with open_tier(tmp_path) as tier:
        lines = repr(tier.catalogue()).splitlines()
        shown = repr(scan(tier, tier.topics()))
        html = tier.catalogue()._repr_html_()
    assert (len(lines), lines[-1]) == (22, "  … 10 more")
    assert shown.startswith("Scan of acme/cold/t00, acme/cold/t01, acme/cold/t02, 27 more\n  reads: ")
    assert html.count("<tr>") == 22


def test_a_scan_shows_what_it_reads(tmp_path):
    lay_out_topics(tmp_path, "orders")
    with open_tier(tmp_path) as tier:
        found = scan(tier, "acme/cold/orders", columns=("__key", "value"))
        size = bytes_text(len(LEDGER.data))
        assert repr(found) == f"Scan of acme/cold/orders\n  reads: {size} in 1 task\n  columns: __key, value"
        assert f"<td>{size} in 1 task</td>" in found._repr_html_()


def test_names_are_text_in_notebooks(tmp_path):
    lay_out_topics(tmp_path, "%3Cscript%3E")
    with open_tier(tmp_path) as tier:
        for shown in (tier.catalogue(), scan(tier, tier.topics())):
            assert "<script>" not in shown._repr_html_()
            assert "&lt;script&gt;" in shown._repr_html_()


def test_units():
    assert [bytes_text(each) for each in (0, 999, 1000, 197_649, 5 * 10**9, 10**18)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "197.6 kB",
        "5.0 GB",
        "1,000.0 PB",
    ]
