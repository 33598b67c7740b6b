package quorum

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// mostNodes is more than any deployment needs: eleven nodes survive five failures.
const mostNodes = 31

// newAlias returns what the names begin with by which the nodes know an owner: those of the same
// client.
//
// An owner asks again after an attempt that failed, while the grants of a minority are
// still being released. A late release must not end the grants of a later attempt. So the
// nodes know each attempt by names of its own, which are never used again once a release
// was sent.
func newAlias(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return fmt.Sprint(client, ":", 1e16+rand.Int64N(8e16)) // two more digits fit in an int64
}

// named returns a hold as the node knows it, whose owner is an alias.
//
// Each node knows another name. A server that is two nodes grants a lock to one of the
// two names and refuses the other: it has one vote.
func (n *node) named(h driver.Hold) *driver.Hold {
	h.Owner = n.name(h.Owner)
	return &h
}

// name returns the name by which the node knows an owner.
func (n *node) name(alias string) string { return alias + strconv.Itoa(10+n.index) }
