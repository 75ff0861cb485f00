from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offload_core.storage.tier import Layer, Tier
from offload_drivers.local import LocalDriver
from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import BrokenPluginError, ObjectNotFoundError, StoreError, StoreUnavailableError
from offload_hooks.testing.memory import MemoryDriver


class Watch:
    """Only watches: says when it goes in and out."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    @hookimpl(wrapper=True)
    def read_range(self):
        self.log.append(f"+{self.name}")
        try:
            return (yield)
        finally:
            self.log.append(f"-{self.name}")


class Pass:
    """A plain layer: calls what is below it once."""

    def __init__(self, name, log, rest):
        self.name, self.log, self.rest = name, log, rest

    @hookimpl
    def read_range(self, key, offset, length):
        self.log.append(f"+{self.name}")
        try:
            return self.rest.read_range(key=key, offset=offset, length=length)
        finally:
            self.log.append(f"-{self.name}")


class Retry:
    def __init__(self, rest, attempts=3):
        self.rest, self.attempts = rest, attempts

    @hookimpl(tryfirst=True)
    def read_range(self, key, offset, length):
        for left in reversed(range(self.attempts)):
            try:
                return self.rest.read_range(key=key, offset=offset, length=length)
            except StoreUnavailableError:
                if not left:
                    raise
        raise AssertionError


class Flaky:
    """Fails the first `failures` reads."""

    def __init__(self, rest, failures):
        self.rest, self.failures = rest, failures

    @hookimpl
    def read_range(self, key, offset, length):
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("try again", key=key)
        return self.rest.read_range(key=key, offset=offset, length=length)


@pytest.fixture
def driver(tmp_path):
    driver = LocalDriver(str(tmp_path / "root"))
    driver.write_index("k", b"0123456789", "text/plain", {}, False)
    return driver


def layer(make, name="layer"):
    return Layer(name=name, make=make)


def read(tier):
    return bytes(tier.read_range("k", 2, 3))


@pytest.mark.parametrize(
    "kinds", ["".join(kinds) for n in range(5) for kinds in itertools.product("wp", repeat=n)]
)
def test_the_order_of_the_configuration_holds_for_any_mix(driver, kinds):
    log = []
    layers = [
        layer(lambda rest, i=i, kind=kind: Watch(i, log) if kind == "w" else Pass(i, log, rest))
        for i, kind in enumerate(kinds)
    ]
    assert read(Tier(driver, layers)) == b"234"
    expected = [f"+{i}" for i in range(len(kinds))] + [f"-{i}" for i in reversed(range(len(kinds)))]
    assert log == expected


def test_tryfirst_and_trylast_do_not_change_the_order(driver):
    log = []

    class Early(Watch):
        @hookimpl(wrapper=True, tryfirst=True)
        def read_range(self):
            self.log.append(self.name)
            return (yield)

    class Late(Watch):
        @hookimpl(wrapper=True, trylast=True)
        def read_range(self):
            self.log.append(self.name)
            return (yield)

    makers = [lambda _: Late("outer", log), lambda _: Early("inner", log)]
    assert read(Tier(driver, [layer(make) for make in makers])) == b"234"
    assert log == ["outer", "inner"]


def test_a_watching_layer_runs_once_for_each_attempt_only_below_a_retrying_one(driver):
    log = []
    tier = Tier(
        driver,
        [
            layer(lambda _: Watch("above", log)),
            layer(Retry),
            layer(lambda _: Watch("below", log)),
            layer(lambda rest: Flaky(rest, failures=2)),
        ],
    )
    assert read(tier) == b"234"
    assert log == ["+above", *["+below", "-below"] * 3, "-above"]


def test_a_retrying_layer_gives_up(driver):
    tier = Tier(driver, [layer(Retry), layer(lambda rest: Flaky(rest, failures=3))])
    with pytest.raises(StoreUnavailableError):
        read(tier)


def test_a_layer_need_not_call_what_is_below(driver):
    class Own:
        @hookimpl
        def read_range(self):
            return b"own"

    log = []
    tier = Tier(driver, [layer(lambda _: Own()), layer(lambda _: Watch("below", log))])
    assert (read(tier), log) == (b"own", [])


def test_the_same_layer_may_stand_twice(driver):
    tier = Tier(driver, [layer(Retry), layer(Retry), layer(lambda rest: Flaky(rest, failures=8))])
    assert read(tier) == b"234"


def test_hooks_that_a_layer_does_not_implement_pass_it_over(driver):
    tier = Tier(driver, [layer(Retry), layer(lambda _: Watch("w", []))])
    assert tier.stat("k").size_bytes == 10
    assert [found.key for found in tier.list_objects()] == ["k"]


def test_a_wrapper_of_an_optional_hook_that_nobody_implements_is_not_called(driver):
    class WatchMany:
        @hookimpl(wrapper=True)
        def read_ranges(self):
            raise AssertionError("there is nothing to wrap")
            yield

    log = []
    tier = Tier(driver, [layer(lambda _: WatchMany()), layer(lambda _: Watch("w", log))])
    ranges = [ByteRange(key="k", offset=i, length=1) for i in range(4)]
    assert [bytes(view) for view in tier.read_ranges(ranges)] == [b"0", b"1", b"2", b"3"]
    assert log.count("+w") == 4


def test_a_layer_can_read_many_ranges_of_what_is_below_though_the_driver_cannot(driver):
    class Split:
        def __init__(self, rest):
            self.rest = rest

        @hookimpl
        def read_range(self, key, offset, length):
            ranges = [ByteRange(key=key, offset=offset + i, length=1) for i in range(length)]
            return b"".join(self.rest.read_ranges(ranges=ranges))

    log = []
    tier = Tier(driver, [layer(Split), layer(Split), layer(lambda _: Watch("w", log))])
    # More reads at once than there are threads, each of which waits for reads of the level below it.
    ranges = [ByteRange(key="k", offset=0, length=10)] * 40
    assert [bytes(view) for view in tier.read_ranges(ranges)] == [b"0123456789"] * 40
    assert log.count("+w") == 400


def test_a_misspelled_hook_names_the_plugin_and_the_closest_hook(driver):
    class Misspelled:
        @hookimpl
        def read_rnage(self, key): ...

    with pytest.raises(BrokenPluginError, match=r"layer 'odd'.*'read_rnage'.*read_range"):
        Tier(driver, [layer(lambda _: Misspelled(), "odd")])


def test_an_argument_that_a_hook_does_not_have_is_refused(driver):
    class Wrong:
        @hookimpl
        def read_range(self, name): ...

    with pytest.raises(BrokenPluginError, match=r"layer 'odd' does not fit(.|\n)*name"):
        Tier(driver, [layer(lambda _: Wrong(), "odd")])


def test_a_driver_without_required_hooks_is_refused_with_their_names():
    class Half:
        @hookimpl
        def stat(self, key): ...

        @hookimpl(wrapper=True)
        def delete(self):
            return (yield)

    with pytest.raises(BrokenPluginError) as caught:
        Tier(Half())
    assert "delete" in str(caught.value)
    assert "read_range," in str(caught.value)
    assert "stat" not in str(caught.value)
    assert "read_ranges" not in str(caught.value)
    assert "list_uploads" not in str(caught.value)


def test_a_factory_that_makes_nothing_is_refused(driver):
    with pytest.raises(BrokenPluginError, match="factory of the layer 'none'"):
        Tier(driver, [layer(lambda _: None, "none")])


def test_plugins_that_cannot_be_told_apart_are_refused(driver):
    class Unhashable:
        __hash__ = None

    with pytest.raises(BrokenPluginError, match="eq=False"):
        Tier(driver, [layer(lambda _: Unhashable())])
    with pytest.raises(BrokenPluginError, match="eq=False"):
        Tier(driver, [layer(lambda _: driver)])


def test_the_rest_cannot_be_used_while_the_layer_is_made(driver):
    with pytest.raises(BrokenPluginError, match=r"rest\.stat before"):
        Tier(driver, [layer(lambda rest: rest.stat)])


def test_the_rest_has_the_hooks_and_nothing_else(driver):
    seen = []
    Tier(driver, [layer(lambda rest: seen.append(rest) or Watch("w", []))])
    [rest] = seen
    assert rest.stat(key="k").size_bytes == 10
    assert not hasattr(rest, "read_rnage")
    assert not hasattr(rest, "__deepcopy__")


def test_a_hook_that_answers_none_is_named_with_its_plugin(driver):
    class Forgetful:
        @hookimpl
        def delete(self, keys):
            pass

    with pytest.raises(BrokenPluginError, match="layer 'f' answered None to delete"):
        Tier(driver, [layer(lambda _: Forgetful(), "f")]).delete(["k"])


def test_stale_uploads_that_the_driver_cannot_list_are_an_error(tmp_path):
    class NoUploads(LocalDriver):
        list_uploads = None

    with pytest.raises(StoreError, match="does not support list_uploads"):
        Tier(NoUploads(str(tmp_path))).list_uploads()


# --- objects that are read whole -----------------------------------------------------------------


class Whole(MemoryDriver):
    """Counts how often an object is read whole."""

    def __init__(self):
        super().__init__()
        self.wholes = 0
        self.write_index("k", b"0123456789", "text/plain", {"a": "b"}, False)

    @hookimpl
    def read_object(self, key, most_bytes):
        self.wholes += 1
        return super().read_object(key, most_bytes)


def test_a_driver_reads_an_object_whole_by_one_call():
    driver, log = Whole(), []
    tier = Tier(driver)
    whole = tier.read_object("k", 100)
    assert (whole.data, whole.stat.user_metadata, driver.wholes) == (b"0123456789", {"a": "b"}, 1)
    assert tier.reads_whole
    assert not Tier(driver, [layer(lambda _: Watch("w", log))]).reads_whole


def test_without_its_own_way_an_object_is_read_by_stat_and_range(driver):
    driver.write_index("empty", b"", "text/plain", {"a": "b"}, False)
    tier = Tier(driver)
    assert not tier.reads_whole
    for key, data in (("k", b"0123456789"), ("empty", b"")):
        assert (tier.read_object(key, 100).data, tier.read_object(key, 100).stat) == (data, tier.stat(key))
    with pytest.raises(ObjectNotFoundError):
        tier.read_object("nothing", 100)


def test_a_layer_that_knows_ranges_only_is_not_passed_by():
    class Upper:
        def __init__(self, rest):
            self.rest = rest

        @hookimpl
        def read_range(self, key, offset, length):
            return bytes(self.rest.read_range(key=key, offset=offset, length=length)).upper()

    driver, log = Whole(), []
    driver.write_index("text", b"abc", "text/plain", {}, False)
    for layers in ([Upper], [lambda _: Watch("w", log)], [lambda _: Watch("w", log), Upper]):
        tier = Tier(driver, [layer(each) for each in layers])
        assert tier.read_object("text", 100).data == (b"ABC" if Upper in layers else b"abc")
        assert not tier.reads_whole
    assert driver.wholes == 0
    assert log.count("+w") == 2


def test_a_layer_that_knows_whole_objects_is_asked():
    class Seen:
        @hookimpl(wrapper=True)
        def read_range(self):
            log.append("range")
            return (yield)

        @hookimpl(wrapper=True)
        def read_object(self):
            log.append("whole")
            return (yield)

    driver, log = Whole(), []
    tier = Tier(driver, [layer(lambda _: Seen()), layer(lambda _: Seen())])
    assert (tier.read_object("k", 100).data, log, driver.wholes) == (b"0123456789", ["whole"] * 2, 1)
    assert tier.reads_whole


def test_a_driver_whose_whole_object_is_not_whole_is_broken():
    class Short(Whole):
        @hookimpl
        def read_object(self, key, most_bytes):
            return replace(super().read_object(key, most_bytes), data=b"012")

    with pytest.raises(BrokenPluginError, match="read_object"):
        Tier(Short()).read_object("k", 100)


def test_of_several_tiers_the_one_that_has_an_object_reads_it_whole(driver):
    tiers = Tier(driver).with_others([Tier(Whole())])
    driver.write_index("mine", b"mine", "text/plain", {}, False)
    driver.delete(["k"])
    assert [tiers.read_object(key, 100).stat.user_metadata for key in ("mine", "k")] == [{}, {"a": "b"}]
    assert not tiers.reads_whole
    assert Tier(Whole()).with_others([Tier(Whole())]).reads_whole
