"""The commands of `offload`: where each is, and what it does in a line, as its own help begins (a test compares)."""

from offload_core.interfaces.cli.late_commands import LateCommand


def _command(name: str, module: str, help_: str) -> LateCommand:
    return LateCommand(name=name, module=f"offload_core.interfaces.cli.{module}", function=name, help=help_)


def _group(name: str, module: str, help_: str) -> LateCommand:
    where = f"offload_core.interfaces.cli.{module}"
    return LateCommand(name=name, module=where, function=f"{name}_group", help=help_, is_group=True)


COMMANDS = (
    _command(
        "ls",
        "looking.ls",
        "List what is offloaded to a tier: ledgers, entries, sizes, formats, ages and problems, by topic or else.",
    ),
    _command(
        "du",
        "looking.du",
        "Count the bytes of a tier: data and index objects of all attempts, whether they are read or not.",
    ),
    _command(
        "inspect",
        "looking.inspect",
        "Show an object's index and blocks, and whether each block's beginning agrees with the index.",
    ),
    _command(
        "history",
        "looking.history",
        "Tell the life of a topic's ledgers in the order of time: closed, tried, offloaded, replaced, deleted.",
    ),
    _command(
        "verify",
        "upkeep.verify",
        "Verify what lies in a tier: objects and indexes, with --records what they say, with --deep every byte.",
    ),
    _command(
        "gc",
        "upkeep.gc",
        "Find what nothing in a tier needs, by managed ledgers' records; with --yes delete it.",
    ),
    _command(
        "delete",
        "upkeep.delete",
        "Delete what is left in a tier of a topic, or of a namespace's topics, that were deleted; with a receipt.",
    ),
    _command(
        "repair",
        "upkeep.repair",
        "Make indexes anew, save what damaged objects still hold into new ones, put the rest aside.",
    ),
    _command(
        "relocate",
        "upkeep.relocate",
        "Move cold copies to another tier, or another format: copied, verified, and then named by the records.",
    ),
    _command(
        "recover",
        "upkeep.recover",
        "Rebuild managed ledgers' records from a tier alone, and say what cannot be known.",
    ),
    _command(
        "cost",
        "looking.cost",
        "Tell what is stored, what writing it took, what one full scan takes before it runs, and what a move would "
        "save.",
    ),
    _command(
        "report",
        "looking.report",
        "Make one self-contained page about a tier: topics, ledgers, growth, sizes, ages, problems.",
    ),
    _command(
        "cat",
        "reading.cat",
        "Print or write the messages (or stored entries) of topics, or of one ledger.",
    ),
    _command(
        "export",
        "reading.export",
        "Export topics, each message once: what is new since the last time, however that ended.",
    ),
    _command(
        "doctor",
        "looking.doctor",
        "Check that a tier can be reached, written, listed, read and cleaned up, and say what to fix.",
    ),
    _command(
        "serve",
        "service.serve",
        "Answer Pulsar's admin requests for what is kept here, until SIGTERM or Ctrl-C.",
    ),
    _group(
        "plugins",
        "plugins.group",
        "List the plugins of each kind, whose they are, and which are broken and why; or begin a new driver.",
    ),
    _group(
        "schemas",
        "reading.schemas",
        "Topics' schemas, which are not in what is offloaded.",
    ),
    _group(
        "config",
        "service.config",
        "What is set up, and what holds of it.",
    ),
    _group(
        "namespaces",
        "service.policies",
        "What namespaces say of offloading and retention.",
    ),
    _group(
        "topics",
        "service.topics",
        "Topics: offload them; what they say of offloading and retention.",
    ),
    _group(
        "rollback",
        "upkeep.rollback",
        "The way back from streaming offload.",
    ),
)
