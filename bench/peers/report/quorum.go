package main

// quorumGoals are the rows of the table of locks on a majority of servers. Each node
// is given 400 ms; a little more is the machine's.
var quorumGoals = ofLocks(
	goal{what: "acquire, 3 servers, p50", measured: "Quorum/nodes=3", unit: "p50-ns", rivals: redsync, limit: shown},
	goal{what: "the same with loose tokens", measured: "Quorum/nodes=3", unit: "p50-ns", impl: "leasewheel-loose", rivals: redsync, limit: shown},
	goal{what: "acquire, 5 servers, p50", measured: "Quorum/nodes=5", unit: "p50-ns", rivals: redsync, limit: shown},
	goal{what: "the same with loose tokens", measured: "Quorum/nodes=5", unit: "p50-ns", impl: "leasewheel-loose", rivals: redsync, limit: shown},
	goal{what: "longest acquisition, 2 of 5 servers stopped", measured: "QuorumIll/ill=stopped", unit: "longest-ns", rivals: redsync, limit: value(500 * ms)},
	goal{what: "longest acquisition, 2 of 5 servers frozen", measured: "QuorumIll/ill=frozen", unit: "longest-ns", rivals: redsync, limit: value(500 * ms)},
	goal{what: "longest acquisition, 2 of 5 servers blackholed", measured: "QuorumIll/ill=blackholed", unit: "longest-ns", rivals: redsync, limit: value(500 * ms)},
)

var redsync = []string{"redsync"}

// quorumComparisons are the rows of the comparison of locks on a majority.
var quorumComparisons = comparisonsOf([]measurement{
	{"3 servers", "Quorum/nodes=3"},
	{"5 servers", "Quorum/nodes=5"},
	{"2 of 5 servers stopped", "QuorumIll/ill=stopped"},
	{"2 of 5 servers frozen", "QuorumIll/ill=frozen"},
	{"2 of 5 servers blackholed", "QuorumIll/ill=blackholed"},
}, []aspect{
	{"acquire, p50", "p50-ns"},
	{"p99", "p99-ns"},
	{"longest", "longest-ns"},
	{"release, p50", "release-p50-ns"},
	{"failed", "failed/pair"},
})

// queueComparisons are the rows about delay queues, which have no peer here.
var queueComparisons = []comparison{
	{"messages a second, 1 at a time", "Messages/concurrency=1", "msg/s"},
	{"… 16 at a time", "Messages/concurrency=16", "msg/s"},
	{"… 64 at a time", "Messages/concurrency=64", "msg/s"},
	{"… 256 at a time", "Messages/concurrency=256", "msg/s"},
	{"lateness of messages due every millisecond: p50", "MessageLateness", "p50-ns"},
	{"… p99", "MessageLateness", "p99-ns"},
	{"… p99.9", "MessageLateness", "p99.9-ns"},
}
