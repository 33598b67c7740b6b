package wheel_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// echoServer sends back what its clients send, and closes a connection that is silent for
// longer than idle. All time-outs of all connections are timers of one wheel.
type echoServer struct {
	wheel *wheel.Wheel
	idle  time.Duration
}

// serve accepts connections until ctx ends, and returns once all of them are closed.
func (s *echoServer) serve(ctx context.Context, listener net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil // shut down
		}
		if err != nil {
			return err
		}
		open.Go(func() { s.echo(ctx, conn) })
	}
}

// echo serves one connection. Closing it ends the Read or the Write that waits for the
// client. Close does not block, so the wheel's worker may call it.
func (s *echoServer) echo(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var silent wheel.Timer // part of a connection's record, where there is one
	silent.Init(s.wheel, func() { conn.Close() })
	defer silent.Cancel()
	buffer := make([]byte, 4096)
	for {
		if _, err := silent.Arm(s.idle); err != nil {
			return // the wheel is stopped
		}
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// An echo server with an idle time-out for each connection, and a shutdown that leaves
// nothing behind.
func Example_echoServer() {
	w, err := wheel.New(wheel.Config{})
	if err != nil {
		panic(err)
	}
	defer w.Stop()
	ctx, shutDown := context.WithCancel(context.Background()) // a program: signal.NotifyContext
	defer shutDown()
	var servers sync.WaitGroup
	dial := func(s *echoServer) net.Conn {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		servers.Go(func() {
			if err := s.serve(ctx, listener); err != nil {
				fmt.Println(err)
			}
		})
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			panic(err)
		}
		return conn
	}

	busy := dial(&echoServer{wheel: w, idle: time.Hour})
	defer busy.Close()
	fmt.Fprint(busy, "hello")
	reply := make([]byte, len("hello"))
	_, err = io.ReadFull(busy, reply)
	fmt.Println("reply:", string(reply), err)

	silent := dial(&echoServer{wheel: w, idle: 20 * time.Millisecond})
	defer silent.Close()
	_, err = silent.Read(reply)
	fmt.Println("silent for too long:", err)

	shutDown()
	servers.Wait()
	_, err = busy.Read(reply)
	fmt.Println("after the shutdown:", err)
	fmt.Println("timers left:", w.Stats().Pending)
	// Output:
	// reply: hello <nil>
	// silent for too long: EOF
	// after the shutdown: EOF
	// timers left: 0
}
