from __future__ import annotations

import os

import pytest

from offload_drivers.hdfs import HdfsDriver
from offload_drivers.hdfs import connection as hdfs_connection
from offload_hooks.errors import InvalidKeyError, OptionError

# --- what the client is configured as ------------------------------------------------------------------------------


@pytest.fixture
def clients(monkeypatch):
    """What the library's client is made of; none is connected. The process has no user yet."""
    monkeypatch.setenv(hdfs_connection.USER, "")
    monkeypatch.setattr(hdfs_connection, "_user_set_by_option", {})
    made = []

    def client(*arguments, **named):
        made.append((arguments, named))
        return object()

    monkeypatch.setattr(hdfs_connection, "Client", client)
    return made


def test_no_client_is_made_before_the_first_request(clients):
    driver = HdfsDriver(url="hdfs://namenode:8020/a")
    driver.describe()
    with pytest.raises(InvalidKeyError):
        driver.read_range("/a", 0, 1)
    assert clients == []


def test_the_client_gets_the_kerberos_options_and_the_configurations_directory(clients, tmp_path):
    driver = HdfsDriver(
        url="hdfs://nameservice/a",
        config_dir=str(tmp_path),
        kerberos_principal="offload/host@REALM",
        kerberos_keytab="/etc/offload.keytab",
        kerberos_cache="/tmp/krb5cc_offload",
        timeout_s=30,
    )
    driver._connections.get()
    ((url, settings, config_dir), named) = clients[0]
    assert (url, config_dir) == ("hdfs://nameservice", str(tmp_path))
    assert named == {
        "kerberos_principal": "offload/host@REALM",
        "kerberos_keytab": "/etc/offload.keytab",
        "kerberos_cache": "/tmp/krb5cc_offload",
    }
    assert settings["dfs.client.socket-timeout"] == "10000"


def test_without_options_the_client_finds_configuration_and_ticket_itself(clients):
    HdfsDriver(url="hdfs:///a")._connections.get()
    ((url, _, config_dir), named) = clients[0]
    assert (url, config_dir) == (None, None)
    assert set(named.values()) == {None}


def test_a_configurations_directory_that_is_not_there_is_refused(clients, tmp_path):
    with pytest.raises(OptionError, match="config_dir"):
        HdfsDriver(url="hdfs://nameservice/a", config_dir=str(tmp_path / "none")).stat("k")
    assert clients == []


def test_a_process_has_one_user(clients):
    HdfsDriver(url="hdfs://n/a", user="alice")._connections.get()
    assert os.environ[hdfs_connection.USER] == "alice"
    for other in ("bob", ""):
        with pytest.raises(OptionError, match="'alice'"):
            HdfsDriver(url="hdfs://n/a", user=other)._connections.get()
    HdfsDriver(url="hdfs://n/a", user="alice")._connections.get()
    assert len(clients) == 2


def test_the_environments_user_is_everyones(clients, monkeypatch):
    monkeypatch.setenv(hdfs_connection.USER, "alice")
    HdfsDriver(url="hdfs://n/a")._connections.get()
    with pytest.raises(OptionError, match="'alice'"):
        HdfsDriver(url="hdfs://n/a", user="bob")._connections.get()


# --- a Hadoop configuration -----------------------------------------------------------------------------------------


def write_site(folder, name, settings):
    properties = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
    )
    (folder / name).write_text(f"<configuration>{properties}</configuration>")


@pytest.fixture
def config_dir(minihdfs, tmp_path):
    """A nameservice of two namenodes, of which the first one is down."""
    write_site(tmp_path, "core-site.xml", {"fs.defaultFS": "hdfs://pulsar"})
    write_site(
        tmp_path,
        "hdfs-site.xml",
        {
            "dfs.nameservices": "pulsar",
            "dfs.ha.namenodes.pulsar": "nn1,nn2",
            "dfs.namenode.rpc-address.pulsar.nn1": "127.0.0.1:1",
            "dfs.namenode.rpc-address.pulsar.nn2": f"{minihdfs.host}:{minihdfs.port}",
        },
    )
    return tmp_path


@pytest.mark.parametrize("url", ["hdfs://pulsar/configured", "hdfs:///configured"])
def test_a_nameservice_is_found_in_the_configuration(open_driver, config_dir, url):
    open_driver(url=url, root="", config_dir=str(config_dir)).write_index(
        "k", b"abc", "a/b", {"who": url}, False
    )
    direct = open_driver(root="/configured")
    assert direct.read_range("k", 0, 3) == b"abc"
    assert direct.stat("k").user_metadata == {"who": url}


def test_hadoop_conf_dir_counts_where_no_option_is_given(run_program, minihdfs, config_dir):
    program = """
        from offload_drivers.hdfs import HdfsDriver

        driver = HdfsDriver(url="hdfs://pulsar/by-environment")
        print(driver.write_index("k", b"abc", "a/b", {}, False).size_bytes)
        driver.close()
    """
    environment = {"HADOOP_CONF_DIR": str(config_dir), "HADOOP_USER_NAME": minihdfs.superuser}
    assert run_program(program, **environment) == "3\n"


def test_a_nameservice_that_the_configuration_does_not_know_is_named(minihdfs, config_dir):
    driver = HdfsDriver(url="hdfs://other/a", config_dir=str(config_dir), user=minihdfs.superuser)
    with pytest.raises(OptionError, match="hdfs://other"):
        driver.stat("k")
