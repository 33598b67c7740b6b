package quorum

import (
	"math"
	"slices"
	"time"
)

// An acquisition proposes a token to all nodes. A node gives it to the grant if it is
// larger than the node's last token and ahead of the node's clock, by a second at most. If
// a majority does, their tokens agree, and none of them has to be raised.

const (
	// proposalMargin is by how much a proposal is ahead of the clock that is furthest ahead.
	// A request may take that much longer to arrive than the node's last one did.
	proposalMargin = 10 * time.Millisecond
	// proposalSpread is how far from their median clocks may be to count. A proposal ahead
	// of all those is less than a second ahead of each.
	proposalSpread = 480 * time.Millisecond
	// proposalUnit divides proposals: Redis nodes count in multiples of 16.
	proposalUnit = 16
	// unknownAhead is the ahead of a node that has not granted anything yet.
	unknownAhead = math.MinInt64
)

// granted records a node's clock at a grant that was requested at an instant.
func (n *node) granted(asked, clock time.Time) {
	if !clock.IsZero() {
		n.ahead.Store(clock.UnixMicro() - asked.UnixMicro())
	}
}

// propose returns the token to propose at an instant. Zero: none.
func (s *Store) propose(asked time.Time) int64 {
	var all [mostNodes]int64
	known := all[:0]
	for _, n := range s.nodes {
		if ahead := n.ahead.Load(); ahead != unknownAhead {
			known = append(known, ahead)
		}
	}
	if !s.fencing || len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	lead := known[len(known)/2]
	for _, ahead := range known[len(known)/2:] {
		if ahead-known[len(known)/2] <= proposalSpread.Microseconds() {
			lead = ahead
		}
	}
	token := asked.UnixMicro() + lead + proposalMargin.Microseconds()
	return max(0, (token+proposalUnit-1)/proposalUnit*proposalUnit)
}
