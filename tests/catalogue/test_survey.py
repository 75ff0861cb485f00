"""Ledgers one after another are those of the catalogue, whatever lies in the tier."""

from __future__ import annotations

from entries import LedgerPart, pip17_object, streaming_object
from mapfiles import lay_out_mapfile, mapfile
from tiers import Names, lay_out, lay_out_broker_objects, lay_out_case

from offload_core.metadata.catalogue import TopicName, list_catalogue
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.storage.tier import open_store


def same_as_catalogue(tier, prefix=""):
    """Compare both; how many ledgers there are."""
    catalogue = list_catalogue(tier, prefix=prefix)
    with LedgerSurvey() as survey:
        survey.fill(tier, prefix=prefix)
        found = list(survey.ledgers())
        assert [(each.cluster, each.topic, each.ledger) for each in found] == [
            (topic.cluster, topic.name, ledger) for topic in catalogue.topics for ledger in topic.ledgers
        ]
        assert tuple(survey.strays()) == catalogue.strays
    return len(found)


def lay_out_all(root):
    """Clusters, superseded copies, trimmed beginnings, strays, all formats."""
    lay_out(root, pip17_object([b"a", b"b"], ledger_id=3), attempt=1)
    lay_out(root, pip17_object([b"a", b"b"], ledger_id=3), attempt=2)
    lay_out(root, pip17_object([b"a"], ledger_id=3), attempt=3, names=Names(cluster="west"))
    lay_out(root, pip17_object([b"c"], ledger_id=4), attempt=4, parts=["data"])
    lay_out(root, pip17_object([b"c"], ledger_id=4), attempt=5, names=Names(managed_ledger=None))
    named = Names(managed_ledger="acme/cold/persistent/segments")
    first = [
        LedgerPart(ledger_id=5, blocks=[[b"e"]], first_entry_id=7),
        LedgerPart(ledger_id=6, blocks=[[b"f"]]),
    ]
    lay_out(root, streaming_object(first), attempt=6, names=named)
    second = [LedgerPart(ledger_id=6, blocks=[[b"g"]], first_entry_id=1)]
    lay_out(root, streaming_object(second), attempt=7, names=named)
    lay_out(root, streaming_object(second), attempt=8, parts=["data"])
    for number, cluster in ((1, "east"), (2, None)):
        one_cluster = Names(managed_ledger="acme/cold/persistent/one", cluster=cluster)
        lay_out(root, pip17_object([b"a"], ledger_id=number), attempt=8 + number, names=one_cluster)


def test_it_gives_what_the_catalogue_has(tmp_path):
    lay_out_all(tmp_path)
    lay_out_broker_objects(tmp_path, ["big", "nobatch"])
    lay_out_case(tmp_path, "streaming", "3-ledgers-5-blocks")
    with open_store(tmp_path) as tier:
        assert same_as_catalogue(tier) > 12
        assert same_as_catalogue(tier, "00000000-0000-4000-8000-00000000000") > 5


def test_mapfiles_belong_to_the_cluster_of_the_rest_of_their_topic(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=1), attempt=1)
    lay_out_mapfile(tmp_path, mapfile([b"a", b"b"], ledger_id=2), checksums=False)
    with open_store(tmp_path) as tier:
        assert same_as_catalogue(tier) == 2


def test_of_topics_that_are_not_wanted_nothing_is_given(tmp_path):
    lay_out_all(tmp_path)
    wanted = TopicName("persistent://acme/cold/segments")
    with open_store(tmp_path) as tier, LedgerSurvey() as survey:
        counts: list[int] = []
        survey.fill(tier, takes=lambda topic: topic == wanted, listener=counts.append)
        assert {each.topic for each in survey.ledgers()} == {wanted}
        assert not list(survey.strays())
        assert counts == [10]
