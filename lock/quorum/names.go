package quorum

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// ownerNames are the names by which the nodes know an owner.
//
// An owner asks again after an attempt that failed, while the grants of a minority are
// still being released. A late release must not end the grants of a later attempt. So the
// nodes know each attempt by names of its own, which are never used again once a release
// was sent.
//
// Each node knows another name. A server that is two nodes grants a lock to one of the
// two names and refuses the other: it has one vote.
type ownerNames struct {
	client string // the part of an owner's name before the colon
	number int64  // the rest; its lowest bits are zero and take the node's index
}

// mostNodes is more than any deployment needs: eleven nodes survive five failures.
const mostNodes = 31

// indexBits are the bits of a name's number that take the index of a node.
const indexBits = 5

// newAlias returns new names for one attempt of an owner, of the same client.
func newAlias(owner string) ownerNames {
	client, _, _ := strings.Cut(owner, ":")
	return ownerNames{client: client, number: rand.Int64() >> indexBits << indexBits}
}

// at returns the name by which a node knows the owner.
func (o ownerNames) at(n *node) string {
	return o.client + ":" + strconv.FormatInt(o.number|int64(n.index), 10)
}

// nodeHold is a hold as the nodes know it.
type nodeHold struct {
	driver.Hold // with an owner that no node knows
	names       ownerNames
}

// at returns the hold as one node knows it.
func (h *nodeHold) at(n *node) *driver.Hold {
	hold := h.Hold
	hold.Owner = h.names.at(n)
	return &hold
}

// none returns the hold as one node knows it, with a count of zero: its release.
func (h *nodeHold) none(n *node) *driver.Hold {
	hold := h.at(n)
	hold.Count = 0
	return hold
}
