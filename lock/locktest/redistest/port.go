package redistest

import (
	"errors"
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

// freePort returns a loopback port without a listener at the moment. Another process may
// take it before the server does; a launch is retried then.
func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("redistest: no free loopback port found")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
