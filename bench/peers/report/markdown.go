package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// peers describes the columns of the comparisons.
var peers = map[string]string{
	"wheel":      "leasewheel's wheel; tasks run on its worker",
	"runtime":    "Go's own timers, `time.AfterFunc`",
	"russellluo": "[RussellLuo/timingwheel](https://github.com/RussellLuo/timingwheel), hierarchical",
	"antlabs":    "[antlabs/timer](https://github.com/antlabs/timer), hierarchical; its tick is 10 ms",
	"ouqiang":    "[ouqiang/timewheel](https://github.com/ouqiang/timewheel); its shortest tick is 1 s, and a cancel searches its bucket, so there are no figures with a million cancels",
	"rfyiamcool": "[rfyiamcool/go-timewheel](https://github.com/rfyiamcool/go-timewheel)",
	"gozero":     "the TimingWheel of [zeromicro/go-zero](https://github.com/zeromicro/go-zero)",
	"singchia":   "[singchia/go-timer](https://github.com/singchia/go-timer), hierarchical; many tasks that schedule hang it for good, so there are no figures of timeouts that arm themselves",
	"netty":      "Netty's HashedWheelTimer on a Java virtual machine, warmed up",

	"leasewheel":         "`Locker.Mutex` with its defaults",
	"leasewheel-fair":    "`Locker.Fair` with its defaults",
	"leasewheel-passing": "`Locker.Mutex`, passed on within the process (`Options.Passes`)",
	"leasewheel-plain":   "the same in the format of SET NX (`FormatPlain`)",
	"redsync":            "[go-redsync/redsync](https://github.com/go-redsync/redsync) with its defaults; it polls every 50 to 250 ms",
	"redsync-tuned":      "the same, polling every 5 ms for as long as it takes",
	"redislock":          "[bsm/redislock](https://github.com/bsm/redislock), polling every 100 ms as in its documentation",
	"redislock-tuned":    "the same, polling every 5 ms",
	"rueidislock":        "[rueidislock](https://github.com/redis/rueidis/tree/main/rueidislock) with its defaults: two of three keys, notified by client-side caching",
	"rueidislock-tuned":  "the same with one key, and without notices of its own changes",
	"directed":           "a floor: a script that grants the lock to the first in a list and publishes that, without leases, tokens or waiters that die",
	"blpop":              "another floor: a list with one element, a connection for each waiter",
	"leasewheel-loose":   "the same, with fencing tokens that grow by the servers' clocks (`LooseTokens`)",
	"delayqueue":         "`lock/delayqueue` with its defaults",
	"promised":           "the floor of the same promises by hand-written scripts: owner, lease, growing token, deadline, waiters first, wake-up",
	"promised-redisson":  "the same with a lock in Redisson's format",
	"grouped":            "a floor: SET NX and a compare-and-delete by script, of all goroutines in one pipeline after the other, without waiting",
	"batched":            "a floor: one goroutine that renews a list of locks in turn, by a script for 128 of them",
	"tickers":            "redsync, with a goroutine and a ticker for each lock, as its users write",
	"autopipelined":      "SET and a script through go-redis's automatic pipelines, without waiting",
}

// writeMarkdown writes docs/benchmarks.md: the limits, the first figure of each workload, and
// the method.
func (r *results) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

<!-- Written by make bench. Edit bench/peers/report instead. -->

- Machine: %s cores, %s/%s, %s

Every benchmark of every implementation ran in a process of its own, one after
the other in each round, so that ratios hold where absolute figures do not.
[results/benchmarks.md](results/benchmarks.md) has all figures.

## Twelve rows

Timers beside those of the runtime; locks on one redis-server, by TCP, beside a peer with its
defaults. A floor does only what the figure is about: no token, no loss, no waiter that dies.
All are explained below.

`, r.config["cores"], r.config["goos"], r.config["goarch"], r.config["go"])
	var rows [][]string
	for _, l := range story {
		if cells := l.cells(r); cells != nil {
			rows = append(rows, cells)
		}
	}
	writeTable(&b, []string{"what", "leasewheel", "a peer", "a floor"}, rows)
	r.section(&b, goalsText, "Schedule")
	writeTable(&b, []string{"what", "wheel", "compared with", "ratio", "limit", ""}, r.goalRows(goals))
	b.WriteString(comparisonText)
	r.writeComparison(&b, implementations, firstFigures(comparisons))
	if rows := r.goalRows(lockGoals); rows != nil {
		r.section(&b, lockGoalsText, "Pairs", "HandOver", "Names", "Waiters")
		writeTable(&b, []string{"what", "leasewheel", "compared with", "ratio", "limit", ""}, rows)
		b.WriteString(lockComparisonText)
		r.writeComparison(&b, lockImplementations, firstFigures(lockComparisons))
	}
	if rows := r.goalRows(budgetGoals); rows != nil {
		r.section(&b, budgetText, "Budget")
		writeTable(&b, []string{"what", "leasewheel", "the floor", "ratio", "limit", ""}, rows)
	}
	if rows := r.goalRows(apartGoals); rows != nil {
		r.section(&b, apartText, "Apart")
		writeTable(&b, []string{"what", "leasewheel", "compared with", "ratio", "limit", ""}, rows)
	}
	if rows := r.goalRows(heldGoals); rows != nil {
		r.section(&b, heldText, "Held")
		writeTable(&b, []string{"what", "leasewheel", "compared with", "ratio", "limit", ""}, rows)
		r.writeComparison(&b, heldImplementations, firstFigures(heldComparisons))
	}
	if rows := r.goalRows(quorumGoals); rows != nil {
		r.section(&b, quorumText, "Quorum", "QuorumIll")
		writeTable(&b, []string{"what", "leasewheel", "redsync", "ratio", "limit", ""}, rows)
		r.writeComparison(&b, quorumImplementations, firstFigures(quorumComparisons))
	}
	if rows := r.comparisonRows(queueComparisons, queueImplementations); rows != nil {
		r.section(&b, queueText, "Messages")
		r.writeComparison(&b, queueImplementations, queueComparisons)
	}
	if rows := r.comparisonRows(firstFigures(leftComparisons), leftImplementations); rows != nil {
		r.section(&b, leftText, "Left")
		writeTable(&b, []string{"what", "left"}, rows)
	}
	b.WriteString(repeatText)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeAll writes docs/results/benchmarks.md: all figures of all implementations.
func (r *results) writeAll(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# All figures of the benchmarks

<!-- Written by make bench. Edit bench/peers/report instead. -->

[Benchmarks](../benchmarks.md) describes the workloads and the implementations, and has the
limits.
`)
	for _, table := range []struct {
		title       string
		workloads   []string
		impls       []string
		comparisons []comparison
	}{
		{"Timers", []string{"Schedule"}, implementations, comparisons},
		{"Locks", []string{"Pairs", "HandOver", "Names", "Waiters"}, lockImplementations, lockComparisons},
		{"What a pair is made of", []string{"Budget"}, budgetImplementations, budgetComparisons},
		{"Processes and a network", []string{"Apart"}, apartImplementations, apartComparisons},
		{"Held locks", []string{"Held"}, heldImplementations, heldComparisons},
		{"Locks on a majority of servers", []string{"Quorum", "QuorumIll"}, quorumImplementations, quorumComparisons},
		{"What is left on the server", []string{"Left"}, leftImplementations, leftComparisons},
	} {
		impls := r.measuredImpls(table.impls)
		if rows := r.comparisonRows(table.comparisons, impls); rows != nil {
			r.section(&b, "\n## "+table.title+"\n\n", table.workloads...)
			writeTable(&b, append([]string{"what"}, impls...), rows)
		}
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// section begins a part with its text, and with when the workloads were measured.
func (r *results) section(b *strings.Builder, text string, workloads ...string) {
	b.WriteString(text)
	var runs []run
	of := make(map[run][]string)
	for _, w := range workloads {
		if run, ok := r.runs[w]; ok {
			if of[run] == nil {
				runs = append(runs, run)
			}
			of[run] = append(of[run], w)
		}
	}
	for _, run := range runs {
		fmt.Fprintf(b, "Measured on %v", run)
		if len(runs) > 1 {
			fmt.Fprintf(b, " (%s)", strings.Join(of[run], ", "))
		}
		b.WriteString(".\n\n")
	}
}

const goalsText = `## Against the limits

Figures are compared with those of the runtime's timers by the same workload, unless
stated otherwise. Durations are wall time for one operation. CPU time is that of the
whole process, with other goroutines. Ticks are 10 ms, and tasks run on the wheel's
worker.

`

const comparisonText = `
## Beside other timers

Each implementation is used as its own documentation shows. A workload that it does not
support is left empty; a negative lateness is too early.

`

const lockGoalsText = `
## Locks against the limits

On a redis-server of its own for each measurement, by TCP on one machine unless a row has
another network. What a limit names no other peer for is compared with the best of those with
their defaults.

`

const lockComparisonText = `
## Beside other locks

A **hand-over** is a grant to another than the last holder; its latency counts from
just before the release to just after the grant. The **longest wait** includes waits
still open at the end. **Fairness** is Jain's index over
the grants of each waiter: 1 if all got the same. **Commands** are those that the
clients send, **calls** those that scripts add on the server, by its own statistics;
requests that travel together in one script are one command. **Overlaps** are grants
while another waiter held the lock.

`

const budgetText = `
## What a pair is made of

The floors keep the promises of a lock by the fewest calls, and do nothing else that a library
does: promised, and promised-redisson in that format. To acquire, TIME buys the token, and that a late request does nothing; EXISTS, that the
lock is free and waiters come first; SET, a token that grows when the clock is set back; HSET
and PEXPIRE, the owner with its holds, and the lease. To release, EXISTS buys the grant to a
waiter; HDEL, that only the owner releases; PUBLISH, the wake-up of Redisson's clients. The rest of
a script is what Redis needs to run Lua, from cold caches when the server has slept. [The
figures](results/benchmarks.md#what-a-pair-is-made-of) of each call, and of the process.

`

const apartText = `
## Processes and a network

The goroutines of several processes, which share no connection, so that less travels together;
and a proxy that keeps all bytes for half a millisecond, each way. [All
figures](results/benchmarks.md#processes-and-a-network).

`

const heldText = `
## Held locks

One process keeps locks of one redis-server alive by TCP, renewing each every third of
its time to live. The memory is all that the process has for them, connections and stacks
included.

`

const quorumText = `
## Locks on a majority of servers

Independent servers of their own for each measurement; those that fall ill are
behind proxies. Both libraries give a server 400 ms, which is what redsync takes of
its time to live of 8 s. One try, without waiting.

`

const queueText = `
## Delay queue

On one server. Handlers do nothing; a message counts from its claim to its
acknowledgement.

`

const leftText = `
## What is left on the server

A minute after the last use of a kind of lock, for a million uses. The client is still open.
Memory is the server's without its connections. The difference between its readings is
scaled to a million uses: some kilobytes that do not grow with the uses become megabytes.

`

const repeatText = `
## What stands in the way of the limits

- **Arm, arm anew, reset**: since Go 1.23 the runtime's Stop and Reset are nearly free: they
  leave the timer in its heap. Ours read the clock, 24 to 26 ns, and do a multiplication and a
  few compare-and-swaps. What a wheel saves is memory, the cost when many are due, and garbage
  collection. So arming anew, idle timers that are soon cancelled, and Netty's figures have no
  limit any more, and a reset may cost what the runtime's costs.
- **Locks, 1 goroutine**: the promises cost this much, see what a pair is made of. redsync's SET
  keeps fewer.
- **Locks, 16 goroutines**: a batch has three requests, and each wakes a sleeping processor on
  either side, 30 to 50 µs.
- **Locks, 128 goroutines**: a request, a lease, a timer and an owner for each in the client,
  none above 11 % of its time; on the server five calls for each lock of a shared run, 1.3 µs
  each in Lua.
- **Several processes**: a batch has requests of one process alone. Half of a client's time is
  system calls, wake-ups and scheduling.
- **Hand-overs among processes**: the scripts count, fence, skip the dead and notify Redisson's
  clients: 17 calls, where a directed hand-over has 5.
- **Local hand-off**: 3 to 4 µs, spread over a lease, an owner, a context and a timer for each
  holder.

## What the workloads are

- **schedule** adds a timeout to those that are pending; **schedule and cancel**
  also cancels it; **churn** does both to one drawn at random of a million.
- **reset to later** moves a pending timeout, as a server does with the timeout
  of a connection at every request.
- **1M due** is a million timeouts with trivial tasks that come due at one
  instant, or evenly within a second. CPU time counts from just before.
- **arm itself** is 100,000 timeouts of three seconds that arm themselves again
  from their own tasks; CPU time for each.
- **idle** is a process of its own that waits for ten seconds; its CPU time and
  its voluntary context switches come from getrusage. GODEBUG=updatemaxprocs=0
  is set, without which a Go process wakes some fifty times to read how many
  processors it may use.
- **lateness** counts from the planned instant, as in [accuracy.md](accuracy.md).
- **stopped** is a process that is stopped for three seconds by a signal.
- **acquire and release**: goroutines use locks of their own, with 64 names each in turn or
  with a new one each time, by TCP or by a unix socket. The server reports its CPU time. The
  hand-overs are by TCP.
- **hand-over**: waiters of one process, or evenly of several, request one lock again and
  again, as soon as they have released it.
- **a million names**: 128 goroutines acquire and release each name once; then the
  server's keys are counted.
- **held locks** are acquired in no order of their names. After half a time to live the
  heap and the stacks are read, then renewals are measured for five seconds or for two
  intervals; the server counts them.
- **left on the server**: 32 goroutines use a kind of lock, each use by a new name or, if
  contended, all by one. A semaphore, permits and a queue have one name. Each kind has a
  server of its own. Its memory and keys are compared with those after 320 uses.
- **10,000 waiters**: goroutines of one process wait for 500 locks of another client. Heap
  and stack are what they add, their own goroutines included.

## How to repeat it

` + "```sh" + `
make bench
` + "```" + `

takes more than an hour, needs a machine that does nothing else, and writes this
page, all figures, and results/benchmarks.txt, whose lines benchstat reads:

` + "```sh" + `
make tools
.cache/bin/benchstat -filter '.unit:sec/op' -col /impl docs/results/benchmarks.txt
` + "```" + `

A part of it, from the folder bench/peers:

` + "```sh" + `
go run ./report -only '^Schedule' -count 1
go test -bench 'Schedule$/impl=(wheel|runtime)$' -count 6
go test -bench 'Pairs/impl=(leasewheel|redsync)$' -benchtime 1x ./locks
go test -run '^$' -bench Left -benchtime 1x ./locks -operations 100000
` + "```" + `

Netty takes part where Java and its jar are found: Debian's package
libnetty-java, or a path in NETTY_JAR.
`

// firstFigures leaves out the rows of a measurement's further figures.
func firstFigures(all []comparison) []comparison {
	return slices.DeleteFunc(slices.Clone(all), func(c comparison) bool { return strings.HasPrefix(c.what, "… ") })
}

// writeComparison writes a table with one figure of all implementations in each row, and
// describes the implementations.
func (r *results) writeComparison(b *strings.Builder, all []string, comparisons []comparison) {
	impls := r.measuredImpls(all)
	writeTable(b, append([]string{"what"}, impls...), r.comparisonRows(comparisons, impls))
	for _, impl := range impls {
		fmt.Fprintf(b, "- %s: %s\n", impl, peers[impl])
	}
}

func (r *results) goalRows(goals []goal) (rows [][]string) {
	for _, g := range goals {
		if cells := g.cells(r); cells != nil {
			rows = append(rows, cells)
		}
	}
	return rows
}

func (r *results) comparisonRows(comparisons []comparison, impls []string) (rows [][]string) {
	for _, c := range comparisons {
		if cells := c.cells(r, impls); cells != nil {
			rows = append(rows, cells)
		}
	}
	return rows
}

// measuredImpls are those of all implementations that have any figure.
func (r *results) measuredImpls(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(impl string) bool {
		for p := range r.samples {
			if p.impl == impl {
				return false
			}
		}
		return true
	})
}

// writeTable writes a table in Markdown, the first column to the left.
func writeTable(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(append([]string{"---"}, slices.Repeat([]string{"--:"}, len(head)-1)...))
	for _, row := range rows {
		line(row)
	}
	b.WriteByte('\n')
}
