// Package bucket holds the position of timeouts: the doubly linked lists that a
// wheel's buckets are, the inboxes through which other goroutines hand timeouts
// to a wheel's worker, and the slabs that their memory comes from.
//
// It serves engines such as package wheel; users of timeouts do not meet it.
//
// # Who may touch what
//
// A [Node] is at any time in exactly one place: free, among the arrivals of its inbox, or
// with the worker. Its links belong to the owner of that place: the inbox's lock guards
// them while the node is free or arriving, and only the worker touches them afterwards.
// All goroutines share only the state word of the [timeout.Entry] inside.
//
// # Rounds
//
// In the hashed wheel of Varghese and Lauck (scheme 6 of "Hashed and
// Hierarchical Timing Wheels", 1987) a timeout whose delay exceeds one
// revolution stays in its bucket for the remaining rounds. Here a node carries
// the absolute tick of its deadline; the rounds that remain at tick now are
// (tick − now) / buckets. A pass over a bucket therefore writes nothing to the
// nodes that stay, and a wheel that was late needs no pass for each revolution
// that it missed.
package bucket
