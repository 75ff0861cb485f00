"""`AsyncClient`: an asynchronous client in synchronous hooks, judged by the suite of drivers over TCP."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import signal
import struct
import threading
import time

import pytest

from offload_hooks import OPTIONAL_HOOKS, TierHooks, hookimpl
from offload_hooks.async_client import AsyncClient
from offload_hooks.errors import StoreTimeoutError, StoreUnavailableError
from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.forks import in_forked_child

# --- a store that is asked over TCP -------------------------------------------------------------------


class Server:
    """A tier in memory that is asked over TCP: one pickled call, one pickled answer."""

    def __init__(self, tier):
        self.driver = MemoryDriver(tier)
        self.connections = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = self.server.sockets[0].getsockname()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader, writer):
        while header := await reader.read(4):
            name, given = pickle.loads(await reader.readexactly(*struct.unpack(">I", header)))
            try:
                answer = getattr(self.driver, name)(**given)
                answer = list(answer) if name.startswith("list_") else answer
                answer = bytes(answer) if isinstance(answer, memoryview) else answer
            except Exception as error:
                answer = error
            packed = pickle.dumps(answer)
            writer.write(struct.pack(">I", len(packed)) + packed)

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def close(self):
        async def end():
            self.server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._do(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Client:
    """What a store's library would have: coroutines over one connection, one at a time."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.turn = asyncio.Lock()

    @classmethod
    async def connect(cls, address):
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, name, given):
        async with self.turn:
            packed = pickle.dumps((name, given))
            self.writer.write(struct.pack(">I", len(packed)) + packed)
            header = await self.reader.readexactly(4)
            answer = pickle.loads(await self.reader.readexactly(*struct.unpack(">I", header)))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def items(self, name, given):
        for each in await self.ask(name, given):
            yield each

    async def aclose(self):
        self.writer.close()
        await self.writer.wait_closed()


class AsyncDriver:
    """Its hooks are below: each asks by the bridge."""

    hook_spec_version = 1

    def __init__(self, address):
        self.client = AsyncClient(lambda: Client.connect(address), Client.aclose, timeout_s=30)

    def close(self):
        self.client.close()


def _hook(name, arguments):
    ask = (
        "iterate(lambda client: client.items"
        if name.startswith("list_")
        else "call(lambda client: client.ask"
    )
    given = ", ".join(f"{each!r}: bytes({each}) if {each!r} == 'data' else {each}" for each in arguments)
    source = f"def {name}(self, {', '.join(arguments)}): return self.client.{ask}({name!r}, {{{given}}}))"
    made = {}
    exec(source, made)
    return hookimpl(made[name])


for _name in {name for name in vars(TierHooks) if not name.startswith("_")} - (
    OPTIONAL_HOOKS - {"list_uploads"}
):
    _code = getattr(TierHooks, _name).__code__
    setattr(AsyncDriver, _name, _hook(_name, _code.co_varnames[1 : _code.co_argcount]))


@pytest.fixture
def tier():
    return MemoryTier()


@pytest.fixture
def server(tier):
    server = Server(tier)
    yield server
    server.close()


class TestAsyncDriver(DriverConformance):
    many_keys = 50
    max_examples = 5

    @pytest.fixture
    def make_driver(self, server):
        return lambda: AsyncDriver(server.address)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


# --- the bridge itself -----------------------------------------------------------------------------


@pytest.fixture
def client(server):
    client = AsyncClient(lambda: Client.connect(server.address), Client.aclose)
    yield client
    client.close()


def ask(client, name="list_objects", **given):
    return client.call(lambda each: each.ask(name, given or {"prefix": "", "start_after": ""}))


def loops():
    return [each for each in threading.enumerate() if each.name == "offload-async-client"]


def test_there_is_one_connection_and_one_thread_for_all_calls(server, client):
    assert loops() == []
    threads = [threading.Thread(target=ask, args=[client]) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert server.connections == 1
    assert len(loops()) == 1


def test_closed_it_leaves_nothing_and_can_be_used_again(server, client):
    ask(client)
    client.close()
    client.close()
    assert loops() == []
    assert ask(client) == []
    assert server.connections == 2


def test_a_forked_child_connects_anew_and_leaves_its_parents_connection_alone(server, client):
    ask(client)

    def child():
        assert ask(client) == []
        client.close()

    in_forked_child(child, 30)
    assert server.connections == 2
    assert ask(client) == []
    assert server.connections == 2, "the parent's connection goes on"


def test_after_a_connect_that_failed_the_next_call_connects(server):
    tries = []

    async def connect():
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError("not yet")
        return await Client.connect(server.address)

    client = AsyncClient(connect, Client.aclose)
    with pytest.raises(ConnectionRefusedError, match="not yet"):
        ask(client)
    assert ask(client) == []
    client.close()


def test_a_call_without_an_answer_ends_and_its_coroutine_is_cancelled(server):
    client = AsyncClient(lambda: Client.connect(server.address), Client.aclose, timeout_s=0.2)
    cancelled = threading.Event()

    async def never(_):
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    begun = time.monotonic()
    with pytest.raises(StoreTimeoutError, match=r"no answer within 0\.2 s"):
        client.call(never)
    assert time.monotonic() - begun < 10
    assert cancelled.wait(10)
    client.close()


def test_ctrl_c_cancels_the_coroutine(client):
    begun, cancelled = threading.Event(), threading.Event()

    async def long(_):
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    main = threading.main_thread().ident

    def press():
        begun.wait(10)
        time.sleep(0.1)  # until the caller waits
        signal.pthread_kill(main, signal.SIGINT)

    interrupt = threading.Thread(target=press)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            client.call(long)
    finally:
        signal.signal(signal.SIGINT, old)
        interrupt.join()
    assert cancelled.wait(10)


def test_a_call_that_is_closed_away_is_one_of_a_store_that_is_not_available(client):
    begun = threading.Event()

    async def long(_):
        begun.set()
        await asyncio.sleep(60)

    closing = threading.Thread(target=lambda: (begun.wait(10), client.close()))
    closing.start()
    with pytest.raises(StoreUnavailableError, match="was closed while"):
        client.call(long)
    closing.join()


def test_an_iterator_is_asked_item_by_item_and_closed_where_it_is_left(client):
    log = []

    async def numbers(_):
        try:
            for number in range(10):
                log.append(number)
                yield number
        finally:
            log.append("closed")

    iterator = client.iterate(numbers)
    assert log == []
    assert [next(iterator), next(iterator)] == [0, 1]
    iterator.close()
    assert log == [0, 1, "closed"]
    assert list(client.iterate(numbers)) == list(range(10))


def test_coroutines_have_the_callers_context(client):
    who = contextvars.ContextVar("who", default="")
    who.set("caller")

    async def read(_):
        return who.get()

    assert client.call(read) == "caller"


def test_a_coroutine_that_calls_synchronously_is_refused_at_once(client):
    async def again(_):
        return ask(client)

    with pytest.raises(RuntimeError, match="would wait for itself"):
        client.call(again)
