package main

// heldImplementations are those that keep locks alive.
var heldImplementations = []string{"leasewheel", "tickers", "batched"}

var batched = []string{"batched"}

// heldGoals are the rows of the table of held locks.
var heldGoals = ofLocks(
	goal{what: "10,000 locks of 3 s: the client's CPU time for a renewal", measured: "Held/locks=10000/ttl=3s",
		unit: "cpu-ns/renewal", rivals: batched, limit: ratio(1.25)},
	goal{what: "… the server's", measured: "Held/locks=10000/ttl=3s", unit: "server-cpu-ns/renewal", rivals: batched, limit: ratio(1.2)},
	goal{what: "100,000 locks of 30 s: the client's CPU time for a renewal", measured: "Held/locks=100000/ttl=30s",
		unit: "cpu-ns/renewal", rivals: batched, limit: ratio(2)},
	goal{what: "… the server's", measured: "Held/locks=100000/ttl=30s", unit: "server-cpu-ns/renewal", rivals: batched, limit: ratio(1.2)},
	goal{what: "… heap and stack for each", measured: "Held/locks=100000/ttl=30s", unit: "B/lock", rivals: batched, limit: value(450)},
	goal{what: "… lost", measured: "Held/locks=100000/ttl=30s", unit: "lost", rivals: batched, limit: value(0)},
)

// heldComparisons are the rows of the comparison of held locks.
var heldComparisons = comparisonsOf([]measurement{
	{"10,000 locks of 3 s", "Held/locks=10000/ttl=3s"},
	{"100,000 locks of 30 s", "Held/locks=100000/ttl=30s"},
}, []aspect{
	{"the client's CPU time for a renewal", "cpu-ns/renewal"},
	{"the server's", "server-cpu-ns/renewal"},
	{"heap and stack for each", "B/lock"},
	{"renewals of each in an interval", "renewals/lock/interval"},
	{"lost", "lost"},
})
