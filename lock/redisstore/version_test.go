package redisstore_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A server that lacks a feature of the scripts gets an error that names the version, not
// only the server's own complaint, and no retry.
func TestAServerThatIsTooOldGetsTheVersionNeeded(t *testing.T) {
	const script = "ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567): "
	for name, refusal := range map[string]string{
		"Redis 6.0 refuses SET with GET":   script + "@user_script:18: ERR syntax error",
		"Redis 6.0 lacks a command":        script + "@user_script:3: @user_script: 3: Unknown Redis command called from Lua script",
		"Redis 6.0 knows fewer arguments":  script + "@user_script:3: @user_script: 3: Wrong number of args calling Redis command From Lua script",
		"a compatible server says it bare": "ERR syntax error",
	} {
		t.Run(name, func(t *testing.T) {
			store, err := redisstore.Open("redis://"+oldServer(t, refusal), redisstore.Config{})
			require.NoError(t, err)
			defer store.Close()
			locker, err := lock.New(store, lock.Config{})
			require.NoError(t, err)
			defer locker.Close(t.Context())
			_, err = locker.Mutex("a").TryLock(t.Context())
			require.ErrorIs(t, err, redisstore.ErrTooOld)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
			assert.ErrorContains(t, err, "Redis 6.2 or newer")
			assert.ErrorContains(t, err, refusal)
		})
	}
}

// oldServer starts a server that refuses every script with the same text, and returns its
// address.
func oldServer(t *testing.T, refusal string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serveOld(conn, refusal)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// serveOld answers the commands of one connection.
func serveOld(conn io.ReadWriter, refusal string) {
	for requests := bufio.NewReader(conn); ; {
		command, err := readCommand(requests)
		if err != nil {
			return
		}
		reply := "+OK"
		switch strings.ToLower(command[0]) {
		case "hello":
			reply = "-ERR unknown command `HELLO`, with args beginning with: "
		case "eval", "evalsha":
			reply = "-" + refusal
		case "time":
			reply = "*2\r\n$10\r\n1795161600\r\n$1\r\n0"
		}
		if _, err := io.WriteString(conn, reply+"\r\n"); err != nil {
			return
		}
	}
}

// readCommand reads one command in the clients' format.
func readCommand(from *bufio.Reader) ([]string, error) {
	count, err := readLength(from)
	words := make([]string, count)
	for i := range words {
		var length int
		if length, err = readLength(from); err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err = io.ReadFull(from, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, err
}

func readLength(from *bufio.Reader) (int, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
