"""The driver is found where it is installed, by its URL and by its name."""

from pulsar_offload import open_store, open_tier


def test_it_is_found_by_its_url_and_by_its_name(tmp_path):
    with open_store(f"{{ cookiecutter.name }}://{tmp_path}") as tier:
        tier.write_index("a/key", b"0123456789", user_metadata={"role": "index"})
    with open_store("{{ cookiecutter.name }}", root=str(tmp_path)) as tier:
        assert bytes(tier.read_range("a/key", 3, 4)) == b"3456"
        assert tier.stat("a/key").user_metadata == {"role": "index"}


def test_a_tier_without_offloaded_topics_is_listed_as_such(tmp_path):
    with open_tier(f"{{ cookiecutter.name }}://{tmp_path}") as tier:
        assert tier.catalogue().topics == ()
