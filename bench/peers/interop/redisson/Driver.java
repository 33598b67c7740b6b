import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RScript;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTransaction;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SubscriptionMode;

/**
 * Drives Redisson by lines on standard input: "id thread verb argument…", each argument
 * URL-encoded. Each named thread is one Java thread, which owns what it locks. A reply is
 * "id ok result" or "id err text". What only some versions have is found by reflection.
 */
public final class Driver {
    static final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    static final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    static final Map<String, RTransaction> transactions = new ConcurrentHashMap<>();
    static volatile boolean stopped;
    static final Set<String> stoppedKinds = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            for (int i = 0; i < words.length; i++) {
                words[i] = URLDecoder.decode(words[i], StandardCharsets.UTF_8);
            }
            if (words[2].equals("stop")) {
                if (words.length > 3) {
                    stoppedKinds.add(words[3]);
                } else {
                    stopped = true;
                }
                reply(words[0], "ok", "");
                continue;
            }
            ExecutorService thread = threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor());
            thread.execute(() -> answer(words[0], words[2], Arrays.copyOfRange(words, 3, words.length)));
        }
        System.exit(0);
    }

    static void answer(String id, String verb, String[] args) {
        try {
            Object result = run(verb, args);
            reply(id, "ok", result == null ? "" : result.toString());
        } catch (Throwable e) {
            if (e instanceof InvocationTargetException && e.getCause() != null) {
                e = e.getCause();
            }
            reply(id, "err", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    static synchronized void reply(String id, String how, String text) {
        System.out.println(id + " " + how + " " + URLEncoder.encode(text, StandardCharsets.UTF_8));
        System.out.flush();
    }

    static Object run(String verb, String[] a) throws Exception {
        if (verb.equals("open")) {
            clients.put(a[0], open(a));
            return null;
        }
        if (verb.equals("clock")) {
            return System.currentTimeMillis();
        }
        RedissonClient client = clients.get(a[0]);
        switch (verb) {
            case "close":
                clients.remove(a[0]).shutdown(0, 1, TimeUnit.SECONDS);
                return null;
            case "lock": // client kind name wait lease
                return acquire(client, a[1], a[2], Long.parseLong(a[3]), Long.parseLong(a[4]));
            case "unlock": // client kind name
                lock(client, a[1], a[2]).unlock();
                return null;
            case "force":
                return flag(lock(client, a[1], a[2]).forceUnlock());
            case "locked":
                return flag(lock(client, a[1], a[2]).isLocked());
            case "holds":
                return lock(client, a[1], a[2]).getHoldCount();
            case "ttl":
                return lock(client, a[1], a[2]).remainTimeToLive();
            case "asynclock": // client kind name wait lease owner
                return flag(lock(client, a[1], a[2]).tryLockAsync(
                    Long.parseLong(a[3]), Long.parseLong(a[4]), TimeUnit.MILLISECONDS, Long.parseLong(a[5])).toCompletableFuture().get());
            case "asyncunlock": // client kind name owner
                lock(client, a[1], a[2]).unlockAsync(Long.parseLong(a[3])).toCompletableFuture().get();
                return null;
            case "reactivelock": // client name wait lease owner
                return flag(client.reactive().getLock(a[1]).tryLock(
                    Long.parseLong(a[2]), Long.parseLong(a[3]), TimeUnit.MILLISECONDS, Long.parseLong(a[4])).block());
            case "reactiveunlock": // client name owner
                client.reactive().getLock(a[1]).unlock(Long.parseLong(a[2])).block();
                return null;
            case "begin": // client transaction map: a put takes the lock of the key
                RTransaction transaction = client.createTransaction(TransactionOptions.defaults().timeout(60, TimeUnit.SECONDS));
                transactions.put(a[1], transaction);
                transaction.getMap(a[2], StringCodec.INSTANCE).put("key", "value");
                return null;
            case "commit":
                transactions.remove(a[1]).commit();
                return null;
            case "rollback":
                transactions.remove(a[1]).rollback();
                return null;
            case "work":
                return work(client, a);
            default:
                return count(client, verb, a);
        }
    }

    /** Semaphores, expiring permits and latches: client name argument… */
    static Object count(RedissonClient client, String verb, String[] a) throws Exception {
        RSemaphore semaphore = client.getSemaphore(a[1]);
        RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(a[1]);
        RCountDownLatch latch = client.getCountDownLatch(a[1]);
        switch (verb) {
            case "semaphore.set":
                return flag(semaphore.trySetPermits(Integer.parseInt(a[2])));
            case "semaphore.acquire": // n wait
                int n = Integer.parseInt(a[2]);
                if (Long.parseLong(a[3]) < 0) {
                    semaphore.acquire(n);
                    return flag(true);
                }
                return flag(semaphore.tryAcquire(n, Long.parseLong(a[3]), TimeUnit.MILLISECONDS));
            case "semaphore.release":
                semaphore.release(Integer.parseInt(a[2]));
                return null;
            case "semaphore.add":
                semaphore.addPermits(Integer.parseInt(a[2]));
                return null;
            case "semaphore.drain":
                return semaphore.drainPermits();
            case "semaphore.available":
                return semaphore.availablePermits();
            case "permits.set":
                return flag(permits.trySetPermits(Integer.parseInt(a[2])));
            case "permits.reset":
                return invoke(permits, "setPermits", new Class<?>[] {int.class}, Integer.parseInt(a[2]));
            case "permits.add":
                permits.addPermits(Integer.parseInt(a[2]));
                return null;
            case "permits.acquire": // wait lease
                return acquirePermit(permits, Long.parseLong(a[2]), Long.parseLong(a[3]));
            case "permits.acquiremany": // n wait lease
                Object ids = invoke(permits, "tryAcquire", new Class<?>[] {int.class, long.class, long.class, TimeUnit.class},
                    Integer.parseInt(a[2]), Long.parseLong(a[3]), Long.parseLong(a[4]), TimeUnit.MILLISECONDS);
                return String.join(",", (List<String>) ids);
            case "permits.release":
                permits.release(a[2]);
                return null;
            case "permits.releasemany":
                invoke(permits, "release", new Class<?>[] {List.class}, Arrays.asList(a[2].split(",")));
                return null;
            case "permits.available":
                return permits.availablePermits();
            case "latch.set":
                return flag(latch.trySetCount(Long.parseLong(a[2])));
            case "latch.down":
                latch.countDown();
                return null;
            case "latch.count":
                return latch.getCount();
            case "latch.delete":
                return flag(latch.delete());
            case "latch.await":
                if (Long.parseLong(a[2]) < 0) {
                    latch.await();
                    return flag(true);
                }
                return flag(latch.await(Long.parseLong(a[2]), TimeUnit.MILLISECONDS));
        }
        throw new IllegalArgumentException("no verb " + verb);
    }

    static String flag(boolean b) {
        return b ? "1" : "0";
    }

    /** A lock of a kind; the members of a multi-lock and of a red lock are apart by commas. */
    static RLock lock(RedissonClient client, String kind, String name) throws Exception {
        switch (kind) {
            case "mutex":
                return client.getLock(name);
            case "fair":
                return client.getFairLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            case "spin":
                return client.getSpinLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "nonreentrant":
                return (RLock) invoke(client, "getNonReentrantLock", new Class<?>[] {String.class}, name);
            case "multi":
                return (RLock) invoke(client, "getMultiLock", new Class<?>[] {RLock[].class}, (Object) members(client, name));
            case "faster":
                String[] words = name.split(",");
                return (RLock) invoke(client, "getFasterMultiLock", new Class<?>[] {String.class, Object[].class},
                    words[0], Arrays.copyOfRange((Object[]) words, 1, words.length));
        }
        throw new IllegalArgumentException("no kind " + kind);
    }

    static RLock[] members(RedissonClient client, String names) {
        return Arrays.stream(names.split(",")).map(client::getLock).toArray(RLock[]::new);
    }

    /** "1", or the token of a fenced lock; "0" if it is not acquired in time. */
    static String acquire(RedissonClient client, String kind, String name, long wait, long lease) throws Exception {
        if (kind.equals("red")) {
            throw new IllegalArgumentException("a red lock has the verb redlock");
        }
        RLock lock = lock(client, kind, name);
        if (kind.equals("fenced")) {
            Object token = wait < 0
                ? invoke(lock, "lockAndGetToken", new Class<?>[] {long.class, TimeUnit.class}, lease, TimeUnit.MILLISECONDS)
                : invoke(lock, "tryLockAndGetToken", new Class<?>[] {long.class, long.class, TimeUnit.class}, wait, lease, TimeUnit.MILLISECONDS);
            return token == null ? "0" : token.toString();
        }
        if (wait < 0) {
            if (lease < 0) {
                lock.lock();
            } else {
                lock.lock(lease, TimeUnit.MILLISECONDS);
            }
            return "1";
        }
        return flag(lock.tryLock(wait, lease, TimeUnit.MILLISECONDS));
    }

    static String acquirePermit(RPermitExpirableSemaphore permits, long wait, long lease) throws Exception {
        String id = wait >= 0 ? permits.tryAcquire(wait, lease, TimeUnit.MILLISECONDS)
            : lease < 0 ? permits.acquire() : permits.acquire(lease, TimeUnit.MILLISECONDS);
        return id == null ? "0" : id;
    }

    /**
     * Takes turns under a lock until "stop", or "stop kind", and returns how many: client kind name how hold
     * pause resource worker capacity enter leave. How is "listen", which waits, or "poll",
     * which tries every few ms. Hold and pause are in ms. Enter and leave are scripts that
     * count overlaps.
     */
    static Object work(RedissonClient client, String[] a) throws Exception {
        String kind = a[1], name = a[2], how = a[3];
        long hold = Long.parseLong(a[4]), pause = Long.parseLong(a[5]);
        List<Object> resource = Collections.singletonList(a[6]);
        String worker = a[7], capacity = a[8], enter = a[9], leave = a[10];
        RScript script = client.getScript(StringCodec.INSTANCE);
        boolean shared = kind.equals("read") || kind.equals("permits");
        long turns = 0;
        while (!stopped && !stoppedKinds.contains(kind)) {
            String permit = null;
            if (kind.equals("permits")) {
                permit = client.getPermitExpirableSemaphore(name).tryAcquire(1000, 30000, TimeUnit.MILLISECONDS);
                if (permit == null) {
                    continue;
                }
            } else if (how.equals("poll")) {
                if (!lock(client, kind, name).tryLock()) {
                    Thread.sleep(2);
                    continue;
                }
            } else if (acquire(client, kind, name, 1000, kind.equals("fair") ? 30000 : -1).equals("0")) {
                continue;
            }
            script.eval(RScript.Mode.READ_WRITE, enter, RScript.ReturnType.BOOLEAN, resource, shared ? "s" : "x", capacity, worker);
            turns++;
            Thread.sleep(hold);
            script.eval(RScript.Mode.READ_WRITE, leave, RScript.ReturnType.BOOLEAN, resource, shared ? "s" : "x", capacity, worker);
            if (permit != null) {
                client.getPermitExpirableSemaphore(name).release(permit);
            } else {
                lock(client, kind, name).unlock();
            }
            Thread.sleep(pause);
        }
        return turns;
    }

    /** client url key=value… The URL is redis://, cluster:// or replicated:// with addresses apart by commas. */
    static RedissonClient open(String[] a) throws Exception {
        Config config = new Config();
        config.setThreads(4);
        config.setNettyThreads(4);
        String[] nodes = a[1].substring(a[1].indexOf("://") + 3).split(",");
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = "redis://" + nodes[i];
        }
        Object server;
        if (a[1].startsWith("cluster:")) {
            server = config.useClusterServers().addNodeAddress(nodes).setScanInterval(1000)
                .setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1)
                .setMasterConnectionPoolSize(32).setSubscriptionConnectionPoolSize(10);
        } else if (a[1].startsWith("sentinel:")) {
            server = config.useSentinelServers().addSentinelAddress(nodes).setMasterName("leasewheel").setScanInterval(1000)
                .setCheckSentinelsList(false).setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1)
                .setMasterConnectionPoolSize(32);
        } else if (a[1].startsWith("replicated:")) {
            server = config.useMasterSlaveServers().setMasterAddress(nodes[0]).addSlaveAddress(nodes[1])
                .setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(32);
        } else {
            server = config.useSingleServer().setAddress(nodes[0]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(32);
        }
        for (int i = 2; i < a.length; i++) {
            String[] option = a[i].split("=", 2);
            set(config, server, option[0], option[1]);
        }
        return Redisson.create(config);
    }

    static void set(Config config, Object server, String option, String value) throws Exception {
        switch (option) {
            case "watchdog":
                config.setLockWatchdogTimeout(Long.parseLong(value));
                return;
            case "fairwait":
                invoke(config, "setFairLockWaitTimeout", new Class<?>[] {long.class}, Long.parseLong(value));
                return;
            case "codec":
                config.setCodec((org.redisson.client.codec.Codec) Class.forName(value).getDeclaredConstructor().newInstance());
                return;
            case "subscription":
                invoke(server, "setSubscriptionMode", new Class<?>[] {SubscriptionMode.class}, SubscriptionMode.valueOf(value));
                return;
            case "sharded": // OFF, ON, AUTO
                Class<?> mode = Class.forName("org.redisson.config.ShardedSubscriptionMode");
                invoke(server, "setShardedSubscriptionMode", new Class<?>[] {mode}, mode.getMethod("valueOf", String.class).invoke(null, value));
                return;
            case "user": // which has no password
                login(config, server, "setUsername", value);
                login(config, server, "setPassword", "none");
                return;
            case "prefix":
                prefix(config, server, value);
                return;
        }
        throw new IllegalArgumentException("no option " + option);
    }

    /** Redisson 4 has users in Config, before they were a server's. */
    static void login(Config config, Object server, String method, String value) throws Exception {
        try {
            invoke(config, method, new Class<?>[] {String.class}, value);
        } catch (NoSuchMethodException e) {
            invoke(server, method, new Class<?>[] {String.class}, value);
        }
    }

    /** A NameMapper that adds a prefix. Redisson 4 has it in Config, before it was a server's. */
    static void prefix(Config config, Object server, String prefix) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.redisson.config.NameMapper");
        } catch (ClassNotFoundException e) {
            type = Class.forName("org.redisson.api.NameMapper");
        }
        Object mapper = Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {type}, (self, method, args) -> {
            if (method.getName().equals("map")) {
                return prefix + args[0];
            }
            if (method.getName().equals("unmap")) {
                return ((String) args[0]).startsWith(prefix) ? ((String) args[0]).substring(prefix.length()) : args[0];
            }
            return method.getName().equals("equals") ? self == args[0] : (Object) 0;
        });
        try {
            invoke(config, "setNameMapper", new Class<?>[] {type}, mapper);
        } catch (NoSuchMethodException e) {
            invoke(server, "setNameMapper", new Class<?>[] {type}, mapper);
        }
    }

    static Object invoke(Object target, String method, Class<?>[] types, Object... args) throws Exception {
        Method m = target.getClass().getMethod(method, types);
        m.setAccessible(true);
        return m.invoke(target, args);
    }
}
