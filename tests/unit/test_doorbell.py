"""The doorbell: who listens is rung, in any thread and process; a lost ring costs one look (DESIGN 4)."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from uuid import uuid4

import pytest
from channels.layers import get_channel_layer
from django.db import connection

from a2a_django import doorbell
from a2a_django.doorbell import Ear
from a2a_django.models import Task
from a2a_django.models.task import Cancel

PATIENCE = 20


def listening(key):
    """An ear of the running loop that listens for `key`."""
    ear = Ear()
    ear.listen(key)
    return ear


def other_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(PATIENCE)


@pytest.fixture
def key():
    return str(uuid4())


# --- within a process


async def test_a_listener_is_rung(key):
    ear = listening(key)
    doorbell.ring(key)
    assert await ear.wait(PATIENCE)


async def test_a_listener_is_rung_from_another_thread(key):
    ear = listening(key)
    other_thread(lambda: doorbell.ring(key))
    assert await ear.wait(PATIENCE)


async def test_a_waiting_listener_is_rung_from_another_thread(key):
    waiting = asyncio.create_task(listening(key).wait(None))
    await asyncio.sleep(0)
    threading.Thread(target=doorbell.ring, args=(key,)).start()
    assert await asyncio.wait_for(waiting, PATIENCE)


async def test_a_ring_before_the_wait_is_not_lost_and_heard_once(key):
    """CASES 60, 62: many rings are one look."""
    ear = listening(key)
    for _ in range(5):
        doorbell.ring(key)
    assert await ear.wait(PATIENCE)
    assert not await ear.wait(0)


async def test_another_s_ring_is_not_heard(key):
    ear = listening(key)
    doorbell.ring(key + "x")
    doorbell.ring(doorbell.CANCEL + key)
    assert not await ear.wait(0.05)


async def test_all_listeners_of_all_loops_are_rung(key):
    """CASES 61"""
    heard, ready = [], threading.Barrier(3, timeout=PATIENCE)

    async def listen():
        ear = listening(key)
        ready.wait()
        heard.append(await ear.wait(PATIENCE))

    threads = [threading.Thread(target=asyncio.run, args=(listen(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    ear = listening(key)
    await asyncio.to_thread(ready.wait)
    doorbell.ring(key)
    assert await ear.wait(PATIENCE)
    for thread in threads:
        await asyncio.to_thread(thread.join, PATIENCE)
    assert heard == [True, True]


async def test_one_ear_may_listen_for_several(key):
    ear = listening(key)
    ear.listen(key + "x")
    doorbell.ring(key + "x")
    assert await ear.wait(PATIENCE)


async def test_an_ear_may_be_put_to_a_key_in_another_thread(key):
    ear = Ear()
    other_thread(lambda: ear.listen(key))
    doorbell.ring(key)
    assert await ear.wait(PATIENCE)


async def test_who_listens_no_more_is_forgotten(key):
    """CASES 59: nothing is left behind of a reader that went away."""
    ear, other = listening(key), listening(key)
    assert key in doorbell._listened()
    del ear
    gc.collect()
    assert key in doorbell._listened()
    del other
    gc.collect()
    assert key not in doorbell._listened()
    assert key not in doorbell._ears
    doorbell.ring(key)


def test_an_ear_whose_loop_has_closed_harms_nobody(key):
    async def listen():
        return listening(key)

    ear = asyncio.run(listen())
    doorbell.ring(key)
    ear.ring()


def test_cancels_are_not_looked_for(key):
    """Whoever holds a lease looks for them when renewing it."""

    async def listen():
        return listening(doorbell.CANCEL + key)

    ear = asyncio.run(listen())
    assert ear is not None
    assert doorbell.CANCEL + key not in doorbell._listened()


# --- a channel layer that fails


class BrokenLayer:
    """A channel layer that is away, or that takes its time for ever."""

    def __init__(self, hangs=False):
        self.hangs, self.sent = hangs, 0

    async def group_send(self, group, message):
        self.sent += 1
        if self.hangs:
            await asyncio.Event().wait()
        raise ConnectionError("secret://user:hunter2@redis")


@pytest.fixture
def layer(settings):
    """layer(hangs): puts a broken layer between the processes."""

    def put(*, hangs):
        backend = f"{BrokenLayer.__module__}.BrokenLayer"
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"hangs": hangs}}}
        return get_channel_layer()

    yield put
    in_keeper(_stop_sending)


def _stop_sending():
    keeper = doorbell.keeper()
    keeper._outbox.clear()
    if keeper._sending:
        keeper._sending.cancel()


def in_keeper(function):
    """What `function()` returns, called by the keeper's thread after all that it was asked before."""

    async def call():
        return function()

    return asyncio.run_coroutine_threadsafe(call(), doorbell.keeper().loop).result(PATIENCE)


async def test_a_ring_does_not_wait_for_the_layer(key, layer):
    """A layer that hangs keeps no one: neither who rings nor who listens here. What it is owed doesn't grow."""
    hanging = layer(hangs=True)
    ear = listening(key)
    for number in range(1000):
        doorbell.ring(f"{key}{number % 10}")
    doorbell.ring(key)
    assert await ear.wait(PATIENCE)
    assert in_keeper(lambda: len(doorbell.keeper()._outbox)) <= 11
    assert hanging.sent == 1


async def test_a_layer_that_is_away_costs_a_warning(key, layer, caplog, eventually):
    broken = layer(hangs=False)
    ear = listening(key)
    doorbell.ring(key)
    assert await ear.wait(PATIENCE)
    await asyncio.to_thread(eventually, lambda: "A ring was lost" in caplog.text)
    assert "hunter2" not in caplog.text
    doorbell.ring(key)
    await asyncio.to_thread(eventually, lambda: broken.sent == 2)


async def test_an_in_memory_layer_counts_as_none(settings):
    """CASES 63: it doesn't wake other threads; readers look by themselves instead."""
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    assert doorbell._layer() is None


# --- a ring that was lost


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [{"last_sequence": 7}, {"lease": "new"}, {"cancel": Cancel.REQUESTED}])
async def test_a_look_finds_what_no_one_rang_for(change, make_task, settings):
    """CASES 62, 63"""
    settings.A2A = {**settings.A2A, "LOOK_SECONDS": 0.02}
    task = await asyncio.to_thread(_in_thread, make_task)
    ear = listening(task.pk)
    while await ear.wait(0.5):  # the append of make_task, and the first look, which can't compare yet
        pass
    await asyncio.to_thread(_in_thread, lambda: Task.objects.filter(pk=task.pk).update(**change))
    assert await ear.wait(PATIENCE)
    assert not await ear.wait(0.2), "what was seen once is no news any more"


def _in_thread(function):
    try:
        return function()
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
async def test_a_look_survives_a_database_that_is_away(key, settings, caplog, monkeypatch, eventually):
    settings.A2A = {**settings.A2A, "LOOK_SECONDS": 0.02}
    looked = threading.Event()

    def broken(keys):
        if caplog.text:
            looked.set()
        raise ConnectionError("secret://user:hunter2@db")

    ear = listening(key)
    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(doorbell, "_standing", broken)
        assert await asyncio.to_thread(looked.wait, PATIENCE), "it looked once and gave up"
    assert "Looking for news failed" in caplog.text
    assert "hunter2" not in caplog.text
    assert ear is not None


# --- between processes


RING = """
import sys, time
from a2a_django import doorbell
while True:
    doorbell.bring({sys.argv[1]: doorbell.Letter(7, [(1, "ä")])})
    time.sleep(0.02)
"""
HEAR = """
import asyncio, sys
from a2a_django.doorbell import Ear
async def hear():
    ear = Ear()
    ear.listen(sys.argv[1])
    sys.exit(0 if await ear.wait(60) else 1)
asyncio.run(hear())
"""


@pytest.fixture
def on_redis(settings, service_url, monkeypatch, stop_keeper):
    """A keeper of this process that begins with Redis between the processes."""
    layer = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [service_url("redis")], "prefix": f"test-{os.getpid()}"},
    }
    settings.CHANNEL_LAYERS = {"default": layer}
    monkeypatch.setattr(doorbell, "_keeper", None)
    yield layer
    stop_keeper(doorbell.keeper())


def process(script, key, layer):
    begin = "import django; from django.conf import settings; django.setup()\n"
    code = f"{begin}settings.CHANNEL_LAYERS = {{'default': {layer}}}\n{script}"
    return subprocess.Popen([sys.executable, "-c", code, key], env=os.environ)


@pytest.mark.redis
async def test_a_ring_is_heard_from_another_process(key, on_redis):
    """CASES 61, 63"""
    ear = listening(key)
    ringing = process(RING, key, on_redis)
    try:
        assert await ear.wait(PATIENCE)
        turn, (event, *_) = ear.letters()[0]  # which may be several that became one
        assert (turn, *event) == (7, 1, "ä")
    finally:
        ringing.kill()
        ringing.wait()


@pytest.mark.redis
def test_a_ring_is_heard_in_another_process(key, on_redis, eventually):
    """CASES 61, 63"""
    hearing = process(HEAR, key, on_redis)

    def over():
        doorbell.ring(key)
        return hearing.poll() is not None

    try:
        eventually(over, 60)
        assert hearing.returncode == 0
    finally:
        hearing.kill()
        hearing.wait()
