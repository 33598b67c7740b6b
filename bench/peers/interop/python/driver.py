"""Drives redis-py's Lock by lines on standard input, as redisson/Driver.java does Redisson."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote_plus, unquote_plus

import redis
from redis.exceptions import LockError

clients = {}
threads = {}
locks = {}  # by client and name: the lock that was acquired last
stopped = threading.Event()
output = threading.Lock()


def reply(number, how, text):
    with output:
        print(number, how, quote_plus(str(text)), flush=True)


def answer(number, verb, args):
    try:
        result = verbs[verb](*args)
        reply(number, "ok", "" if result is None else result)
    except Exception as e:
        reply(number, "err", f"{type(e).__name__}: {e}")


def open_(client, url):
    clients[client] = redis.Redis.from_url(url)


def close(client):
    clients.pop(client).close()


def acquire(client, name, wait, lease, poll=0.1):
    lock = clients[client].lock(name, timeout=int(lease) / 1000, sleep=poll, thread_local=False)
    wait = int(wait)
    if not lock.acquire(blocking=wait != 0, blocking_timeout=None if wait < 0 else wait / 1000):
        return None
    return lock


def lock(client, kind, name, wait, lease):
    held = acquire(client, name, wait, lease)
    if held is None:
        return 0
    locks[client, name] = held
    return 1


def unlock(client, kind, name):
    locks.pop((client, name)).release()


def extend(client, name, lease):
    locks[client, name].extend(int(lease) / 1000, replace_ttl=True)


def work(client, kind, name, how, hold, pause, resource, worker, capacity, enter, leave):
    connection, turns = clients[client], 0
    while not stopped.is_set():
        held = acquire(client, name, 1000, 10000)
        if held is None:
            continue
        connection.eval(enter, 1, resource, "x", capacity, worker)
        turns += 1
        time.sleep(int(hold) / 1000)
        connection.eval(leave, 1, resource, "x", capacity, worker)
        held.release()
        time.sleep(int(pause) / 1000)
    return turns


verbs = {"open": open_, "close": close, "lock": lock, "unlock": unlock, "extend": extend, "work": work}

for line in sys.stdin:
    number, thread, verb, *args = map(unquote_plus, line.rstrip("\n").split(" "))
    if verb == "stop":
        stopped.set()
        reply(number, "ok", "")
        continue
    threads.setdefault(thread, ThreadPoolExecutor(1)).submit(answer, number, verb, args)
