import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import java.util.function.ToLongFunction;

/**
 * The workloads of the Go benchmarks in the folder above on Netty's
 * HashedWheelTimer, printed in the same form. A workload is warmed up first, so
 * that compiled code is measured.
 *
 * <pre>java -cp netty-common.jar NettyBench.java Schedule/pending=1k</pre>
 */
public final class NettyBench {
    static final int BUCKETS = 512;
    static final int MILLION = 1_000_000;
    static final long SETTLING_MS = 20;
    static final TimerTask NOTHING = timeout -> {};
    static final long[] DELAYS = new SplittableRandom(1).longs(4096,
            TimeUnit.MINUTES.toNanos(10), TimeUnit.MINUTES.toNanos(20)).toArray();

    static HashedWheelTimer timer;
    static double seconds = 1;

    public static void main(String[] args) throws Exception {
        if (args.length > 1) {
            seconds = Double.parseDouble(args[1]);
        }
        String[] name = args[0].split("/");
        switch (name[0]) {
            case "Schedule": schedule(args[0], pending(name[1])); break;
            case "ScheduleCancel": scheduleCancel(args[0], pending(name[1])); break;
            case "Churn": churn(args[0]); break;
            case "Memory": memory(args[0]); break;
            case "Burst": burst(args[0], 0); break;
            case "Spread": burst(args[0], TimeUnit.SECONDS.toNanos(1)); break;
            case "SelfRearm": selfRearm(args[0], tick(name[1])); break;
            case "Idle": idle(args[0], pending(name[1]), tick(name[2])); break;
            case "Early": lateness(args[0], 10, 10, 2000); break;
            case "Lateness": lateness(args[0], tick(name[1]), 1, 2000); break;
            default: throw new IllegalArgumentException("no workload is named " + args[0]);
        }
        System.exit(0);
    }

    static int pending(String parameter) {
        switch (parameter) {
            case "pending=1k": return 1_000;
            case "pending=100k": return 100_000;
            case "pending=1M": return MILLION;
            default: return Integer.parseInt(parameter.substring("pending=".length()));
        }
    }

    static int tick(String parameter) {
        return Integer.parseInt(parameter.substring("tick=".length()).replace("ms", ""));
    }

    static void open(int tickMs) {
        timer = new HashedWheelTimer(tickMs, TimeUnit.MILLISECONDS, BUCKETS);
        timer.start();
    }

    static Timeout add(int i) {
        return timer.newTimeout(NOTHING, DELAYS[i % DELAYS.length], TimeUnit.NANOSECONDS);
    }

    static Timeout[] prefill(int pending) throws InterruptedException {
        Timeout[] all = new Timeout[pending];
        for (int i = 0; i < pending; i++) {
            all[i] = add(i);
        }
        // The worker moves 100,000 arrivals in a tick.
        Thread.sleep(SETTLING_MS + 20 * (pending / 100_000));
        return all;
    }

    /** What the operations of a benchmark have cost so far. */
    static final class Meter {
        long wall, cpu, operations;

        void run(int n, IntConsumer operation) throws InterruptedException {
            long cpuBefore = cpuTime();
            long before = System.nanoTime();
            for (int i = 0; i < n; i++) {
                operation.accept(i);
            }
            wall += System.nanoTime() - before;
            Thread.sleep(SETTLING_MS);
            cpu += cpuTime() - cpuBefore;
            operations += n;
        }

        void report(String name) {
            print(name, operations, (double) wall / operations, "ns/op", (double) cpu / operations, "cpu-ns/op");
        }
    }

    /** Warms up what all operations are made of, and runs batches for as long as is asked. */
    static void measure(String name, int batch, IntConsumer operation, Runnable between) throws InterruptedException {
        for (int second = 0; second < 2; second++) {
            new Meter().run(5_000_000, i -> add(i).cancel());
            new Meter().run(batch, operation);
            between.run();
        }
        Meter meter = new Meter();
        while (meter.wall < seconds * 1e9) {
            meter.run(batch, operation);
            between.run();
        }
        meter.report(name);
    }

    static void schedule(String name, int pending) throws InterruptedException {
        open(10);
        Timeout[] keep = prefill(pending);
        Timeout[] batch = new Timeout[Math.max(pending / 10, 20_000)];
        measure(name, batch.length, i -> batch[i] = add(i), () -> {
            for (Timeout t : batch) {
                t.cancel();
            }
            sleep(SETTLING_MS);
        });
        if (keep.length != pending) throw new AssertionError();
    }

    static void scheduleCancel(String name, int pending) throws InterruptedException {
        open(10);
        Timeout[] keep = prefill(pending);
        measure(name, 1_000_000, i -> add(i).cancel(), () -> {});
        if (keep.length != pending) throw new AssertionError();
    }

    static void churn(String name) throws InterruptedException {
        open(10);
        Timeout[] all = prefill(MILLION);
        SplittableRandom random = new SplittableRandom(3);
        measure(name, 1_000_000, i -> {
            int at = random.nextInt(all.length);
            all[at].cancel();
            all[at] = add(i);
        }, () -> {});
    }

    static void memory(String name) throws InterruptedException {
        open(10);
        Timeout[] all = new Timeout[MILLION];
        long before = heap();
        for (int i = 0; i < all.length; i++) {
            all[i] = add(i);
        }
        Thread.sleep(500);
        long after = heap();
        print(name, 1, (double) (after - before) / MILLION, "B/timeout");
        if (all[MILLION - 1] == null) throw new AssertionError();
    }

    static long heap() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    static void burst(String name, long spread) throws InterruptedException {
        open(10);
        burstOnce(spread);
        System.gc();
        long[] result = burstOnce(spread);
        print(name, 1, result[0], "cpu-ns/burst", result[1], "last-late-ns");
    }

    static long[] burstOnce(long spread) throws InterruptedException {
        AtomicInteger ran = new AtomicInteger();
        AtomicLong last = new AtomicLong();
        CountDownLatch finished = new CountDownLatch(1);
        TimerTask task = timeout -> {
            if (ran.incrementAndGet() == MILLION) {
                last.set(System.nanoTime());
                finished.countDown();
            }
        };
        long lead = TimeUnit.SECONDS.toNanos(4);
        long due = System.nanoTime() + lead;
        for (int i = 0; i < MILLION; i++) {
            timer.newTimeout(task, due - System.nanoTime() + spread / MILLION * i, TimeUnit.NANOSECONDS);
        }
        sleep((due - System.nanoTime() - lead / 16) / 1_000_000);
        long cpu = cpuTime();
        finished.await();
        Thread.sleep(SETTLING_MS);
        return new long[] {cpuTime() - cpu, last.get() - due - spread};
    }

    static void selfRearm(String name, int tickMs) throws InterruptedException {
        open(tickMs);
        int count = 100_000;
        long period = TimeUnit.SECONDS.toNanos(3);
        AtomicLong fired = new AtomicLong();
        TimerTask task = new TimerTask() {
            @Override
            public void run(Timeout timeout) {
                fired.incrementAndGet();
                timer.newTimeout(this, period, TimeUnit.NANOSECONDS);
            }
        };
        for (int i = 0; i < count; i++) {
            timer.newTimeout(task, period / count * (i + 1), TimeUnit.NANOSECONDS);
        }
        Thread.sleep(6000);
        long cpu = cpuTime(), before = fired.get(), began = System.nanoTime();
        Thread.sleep(3000);
        double used = cpuTime() - cpu;
        double wall = System.nanoTime() - began;
        print(name, 1, used / (fired.get() - before), "cpu-ns/fire", 100 * used / wall, "%core");
    }

    static void idle(String name, int pending, int tickMs) throws Exception {
        open(tickMs);
        List<Timeout> all = new ArrayList<>();
        for (int i = 0; i < pending; i++) {
            all.add(timer.newTimeout(NOTHING, 60_000 + 5L * i, TimeUnit.MILLISECONDS));
        }
        Thread.sleep(2000);
        long cpu = cpuTime(), switches = switches();
        Thread.sleep(10_000);
        print(name, 1, cpuTime() - cpu, "cpu-ns", switches() - switches, "switches");
    }

    /** CPU time of all threads of this process, in nanoseconds. */
    static long cpuTime() {
        return sumOverThreads("schedstat", line -> Long.parseLong(line.split(" ")[0]));
    }

    /** Voluntary context switches of all threads of this process. */
    static long switches() {
        return sumOverThreads("status", line -> line.startsWith("voluntary_ctxt_switches:")
                ? Long.parseLong(line.substring(line.indexOf(':') + 1).trim()) : 0);
    }

    static long sumOverThreads(String file, ToLongFunction<String> value) {
        long sum = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                for (String line : Files.readAllLines(thread.resolve(file))) {
                    sum += value.applyAsLong(line);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return sum;
    }

    static void lateness(String name, int tickMs, int minMs, int maxMs) throws InterruptedException {
        open(tickMs);
        boolean busy = name.endsWith("load=busy");
        latenessOnce(2000, 1, 500);
        if (busy) {
            for (int i = 0; i < Runtime.getRuntime().availableProcessors(); i++) {
                Thread load = new Thread(NettyBench::compute);
                load.setDaemon(true);
                load.start();
            }
        }
        long[] late = latenessOnce(10_000, minMs, maxMs);
        long early = Arrays.stream(late).filter(l -> l < 0).count();
        Arrays.sort(late);
        print(name, 1, early, "early", Math.max(late[late.length / 2], 0), "p50-ns",
                Math.max(late[late.length * 99 / 100], 0), "p99-ns", Math.max(late[late.length - 1], 0), "max-ns");
    }

    static long[] latenessOnce(int count, int minMs, int maxMs) throws InterruptedException {
        SplittableRandom random = new SplittableRandom(1);
        long[] late = new long[count];
        CountDownLatch left = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            long delay = random.nextLong(minMs * 1_000_000L, maxMs * 1_000_000L);
            int at = i;
            long planned = System.nanoTime() + delay;
            timer.newTimeout(timeout -> {
                late[at] = System.nanoTime() - planned;
                left.countDown();
            }, delay, TimeUnit.NANOSECONDS);
        }
        left.await();
        return late;
    }

    static volatile long sink;

    static void compute() {
        for (long x = 1;; x = x * 6364136223846793005L + 1442695040888963407L) {
            sink = x;
        }
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(Math.max(ms, 0));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Prints a line as Go's benchmarks do. */
    static void print(String name, long n, Object... figures) {
        int slash = name.indexOf('/');
        String workload = slash < 0 ? name : name.substring(0, slash);
        String parameters = slash < 0 ? "" : name.substring(slash);
        StringBuilder line = new StringBuilder("Benchmark" + workload + "/impl=netty" + parameters
                + "-" + Runtime.getRuntime().availableProcessors() + "\t" + n);
        for (int i = 0; i < figures.length; i += 2) {
            line.append(String.format("\t%.4f %s", ((Number) figures[i]).doubleValue(), figures[i + 1]));
        }
        System.out.println(line);
    }
}
