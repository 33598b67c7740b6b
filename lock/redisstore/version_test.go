package redisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A server that lacks a feature of the scripts gets an error that names the version, not
// only the server's own complaint, and no retry.
func TestAServerThatIsTooOldGetsTheVersionNeeded(t *testing.T) {
	const script = "ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567): "
	for name, refusal := range map[string]string{
		"Redis 6.0 refuses SET with GET":   script + "@user_script:18: ERR syntax error",
		"Redis 5.0 ends with a space":      script + "@user_script:18: ERR syntax error ",
		"Redis 6.0 lacks a command":        script + "@user_script:3: @user_script: 3: Unknown Redis command called from Lua script",
		"Redis 6.0 knows fewer arguments":  script + "@user_script:3: @user_script: 3: Wrong number of args calling Redis command From Lua script",
		"Valkey lacks a command":           "ERR Unknown command called from script script: on @user_script:59.",
		"Valkey knows fewer arguments":     "ERR Wrong number of args calling command from script script: on @user_script:59.",
		"Valkey without its module of Lua": "ERR Could not find scripting engine 'lua'",
		"a compatible server says it bare": "ERR syntax error",
		"a server hides EVAL":              "ERR unknown command 'eval', with args beginning with: 'secret'",
	} {
		t.Run(name, func(t *testing.T) {
			err := tryAt(t, "redis://"+oldServer(t, refusal)+"?"+unhurriedIO)
			require.ErrorIs(t, err, redisstore.ErrTooOld)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
			assert.ErrorContains(t, err, "Redis 6.2 or newer")
			command, _, _ := strings.Cut(refusal, ", with args")
			assert.ErrorContains(t, err, strings.TrimSpace(command))
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

// A real server that hides a command gets the same error; each kind of server refuses in words of its own.
func TestServerThatHidesACommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"evalsha", "time", "pexpire"} {
		server := redistest.Start(t, redistest.Config{Directives: []string{"rename-command " + command + ` ""`}})
		_, err := locker(t, server.Client(t), lock.Config{RequestTimeout: answersWithin}).Mutex("a").TryLock(t.Context())
		isFault(t, err, redisstore.ErrTooOld)
	}
}

// A client that insists on notifications of maintenance learns that the server has none.
func TestServerWithoutMaintenanceNotifications(t *testing.T) {
	t.Parallel()
	options := redistest.Start(t, redistest.Config{}).Options()
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	_, err := locker(t, client, lock.Config{RequestTimeout: answersWithin}).Mutex("a").TryLock(t.Context())
	require.ErrorContains(t, err, "ModeAuto")
	require.NotErrorIs(t, err, redisstore.ErrTooOld)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// oldServer starts a server that refuses every script with the same text, and returns its
// address.
func oldServer(t *testing.T, refusal string) string {
	t.Helper()
	return fakeServer(t, func(command []string) string {
		switch strings.ToLower(command[0]) {
		case "hello":
			return "-ERR unknown command `HELLO`, with args beginning with: \r\n"
		case "eval", "evalsha":
			return "-" + refusal + "\r\n"
		case "time":
			return "*2\r\n$10\r\n1795161600\r\n$1\r\n0\r\n"
		default:
			return "+OK\r\n"
		}
	})
}
