package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range of outgoing connections (32768 upwards on Linux),
// since such a connection could take a port between our check and the server's bind.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// port is a loopback port that one server has until the server is closed, also while it is
// killed: a test may expect that none answers there, or start the server again.
type port struct {
	number int
	// claim is a UDP socket on the same number, which redis-server does not use. It keeps the
	// port from the other servers of this package, in this process and in others.
	claim net.PacketConn
}

// freePort returns a loopback port without a listener at the moment. Another program may take
// it before the server does; a launch is retried then.
func freePort() (port, error) {
	for range 100 {
		if p, err := claimPort(lowestPort + rand.IntN(highestPort-lowestPort)); err == nil {
			return p, nil
		}
	}
	return port{}, errors.New("redistest: no free loopback port found")
}

// FreeAddress returns an address on loopback for a server of another kind. No other server of these
// tests gets it until the end of t, in this process or in others, also while its own does not run.
func FreeAddress(t TB) string {
	t.Helper()
	p, err := freePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(p.release)
	return loopback(p.number)
}

// claimPort returns the port of a number, unless another server has it or it has a listener.
func claimPort(number int) (port, error) {
	claim, err := net.ListenPacket("udp", loopback(number))
	if err != nil {
		return port{}, fmt.Errorf("redistest: %w", err)
	}
	listener, err := net.Listen("tcp", loopback(number))
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		return port{}, errors.Join(fmt.Errorf("redistest: %w", err), claim.Close())
	}
	return port{number, claim}, nil
}

// release gives the port back.
func (p port) release() {
	_ = p.claim.Close() // nothing was sent
}

func loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
