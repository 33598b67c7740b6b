package main

// leftImplementations are those that have every kind of lock.
var leftImplementations = []string{"leasewheel"}

// leftComparisons are the rows about what is left on the server.
var leftComparisons = comparisonsOf([]measurement{
	{"mutex", "Left/kind=mutex"},
	{"mutex, contended", "Left/kind=mutex-contended"},
	{"fair lock", "Left/kind=fair"},
	{"fair lock, contended", "Left/kind=fair-contended"},
	{"read lock", "Left/kind=read"},
	{"write lock", "Left/kind=write"},
	{"write lock, contended", "Left/kind=write-contended"},
	{"mutex in the plain format", "Left/kind=plain"},
	{"semaphore", "Left/kind=semaphore"},
	{"expiring permit", "Left/kind=permits"},
	{"countdown latch", "Left/kind=latch"},
	{"election", "Left/kind=elect"},
	{"message of a delay queue", "Left/kind=queue"},
}, []aspect{
	{"keys", "keys/M"},
	{"bytes", "B/M"},
	{"uses that were measured", "uses"},
})
