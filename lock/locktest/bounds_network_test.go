package locktest_test

import (
	"context"
	"net"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest/internal/network"
)

// faulty is the network of a process. It delivers everything at once until a fault begins.
type faulty struct {
	*network.Network
	well  bool // faults do not reach it
	fault *network.Fault
	reset *time.Timer // of the fault, or nil
}

// fault is what a network does to requests. Its zero value is none.
type fault struct {
	mute  bool          // requests do not arrive
	after int           // how many packets arrive nevertheless
	delay time.Duration // after which a request arrives
	reset time.Duration // after the begin of the fault, its connections are reset; zero: never
}

func newNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error)) *faulty {
	return &faulty{Network: network.New(dial, 0, network.Fault{})}
}

// begin begins a fault.
func (n *faulty) begin(f fault) {
	if n.well {
		return
	}
	n.fault = &network.Fault{LoseRequests: f.mute, After: f.after, Requests: f.delay}
	n.Begin(n.fault)
	if f.reset > 0 {
		n.reset = time.AfterFunc(f.reset, n.Reset)
	}
}

// heal ends the fault, and the connections that it may have damaged.
func (n *faulty) heal() {
	if n.reset != nil {
		n.reset.Stop()
	}
	n.End(n.fault)
	n.Reset()
}
