// Drives node-redlock and redlock-universal by lines on standard input, as
// redisson/Driver.java does Redisson. The kind of lock is the library's name.

import { createInterface } from 'node:readline';
import Redis from 'ioredis';
import * as redlock from 'redlock';
import { IoredisAdapter, createLock } from 'redlock-universal';

const Redlock = redlock.default.default ?? redlock.default;
const clients = new Map();
const threads = new Map(); // the end of what each named thread was asked for
const held = new Map(); // by client and name: how to give back and to prolong
const pause = ms => new Promise(done => setTimeout(done, ms));
let stopped = false;

// once tries to take a lock a single time and returns nothing if another has it.
const once = {
  async redlock(client, name, lease) {
    const locks = new Redlock([client], { retryCount: 0, automaticExtensionThreshold: 0 });
    locks.on('error', () => {});
    try {
      let lock = await locks.acquire([name], lease);
      return { release: () => lock.release(), extend: async ms => { lock = await lock.extend(ms); } };
    } catch (e) {
      if (e instanceof redlock.ExecutionError || e.name === 'ExecutionError') return;
      throw e;
    }
  },
  async 'redlock-universal'(client, name, lease) {
    const lock = createLock({ adapter: new IoredisAdapter(client), key: name, ttl: lease, retryAttempts: 0 });
    try {
      const handle = await lock.acquire();
      return {
        release: async () => { if (!await lock.release(handle)) throw new Error('not held'); },
        extend: async ms => { if (!await lock.extend(handle, ms)) throw new Error('not held'); },
      };
    } catch (e) {
      if (e.name === 'LockAcquisitionError') return;
      throw e;
    }
  },
};

async function acquire(client, kind, name, wait, lease) {
  const end = wait < 0 ? Infinity : Date.now() + wait;
  for (;;) {
    const lock = await once[kind](client, name, lease);
    if (lock || Date.now() >= end) return lock;
    await pause(50 + 50 * Math.random());
  }
}

const verbs = {
  async open(client, url) {
    const connection = new Redis(url);
    connection.on('error', () => {});
    await connection.ping();
    clients.set(client, connection);
  },
  async close(client) {
    clients.get(client).disconnect();
    clients.delete(client);
  },
  async lock(client, kind, name, wait, lease) {
    const lock = await acquire(clients.get(client), kind, name, Number(wait), Number(lease));
    if (!lock) return 0;
    held.set(`${client} ${name}`, lock);
    return 1;
  },
  async unlock(client, kind, name) {
    const lock = held.get(`${client} ${name}`);
    held.delete(`${client} ${name}`);
    await lock.release();
  },
  async extend(client, name, lease) {
    await held.get(`${client} ${name}`).extend(Number(lease));
  },
  async work(client, kind, name, how, hold, rest, resource, worker, capacity, enter, leave) {
    const connection = clients.get(client);
    let turns = 0;
    while (!stopped) {
      const lock = await acquire(connection, kind, name, 1000, 10000);
      if (!lock) continue;
      await connection.eval(enter, 1, resource, 'x', capacity, worker);
      turns++;
      await pause(Number(hold));
      await connection.eval(leave, 1, resource, 'x', capacity, worker);
      await lock.release();
      await pause(Number(rest));
    }
    return turns;
  },
};

const reply = (id, how, text) => process.stdout.write(`${id} ${how} ${encodeURIComponent(text ?? '')}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const [id, thread, verb, ...args] = line.split(' ').map(word => decodeURIComponent(word.replaceAll('+', ' ')));
  if (verb === 'stop') {
    stopped = true;
    reply(id, 'ok');
    continue;
  }
  const before = threads.get(thread) ?? Promise.resolve();
  threads.set(thread, before.then(() => verbs[verb](...args))
    .then(result => reply(id, 'ok', result), e => reply(id, 'err', `${e.name}: ${e.message}`)));
}
process.exit(0);
