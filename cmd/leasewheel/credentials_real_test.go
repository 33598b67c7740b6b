//go:build real && unix

package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A password that changes while a lock is held is used by the next connection. The lease
// survives, also if the file is behind the server for a while.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]func(file string) []string{
		"file":    func(file string) []string { return []string{"--redis-password-file", file} },
		"command": func(file string) []string { return []string{"--redis-password-command", "cat " + file} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const first, second = secret + "-1", secret + "-2"
			server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"worker on >" + first + " ~* &* +@all"}})
			_, address := server.Addr()
			file := passwordFile(t, first+"\n")
			admin, ctx := server.Client(t), bounded(t)
			const ttl = 20 * time.Second
			held := holder(t, nil, append([]string{"--redis", "redis://worker@" + address, "--ttl", ttl.String()}, flags(file)...)...)

			require.NoError(t, admin.Do(ctx, "acl", "setuser", "worker", "resetpass", ">"+second).Err())
			require.NoError(t, admin.Do(ctx, "client", "kill", "user", "worker").Err())
			time.Sleep(time.Second) // refused meanwhile
			require.NoError(t, os.WriteFile(file, []byte(second+"\n"), 0o600))
			left := func() time.Duration { return admin.PTTL(ctx, "job").Val() }
			before := left()
			require.Eventually(t, func() bool { return left() > before }, ttl, 10*time.Millisecond, "it is renewed")

			require.NoError(t, held.stdin.Close())
			assert.Equal(t, 0, held.wait())
			assert.NotContains(t, held.stderr.String(), secret)
			assert.Zero(t, admin.Exists(ctx, "job").Val(), "and released")
		})
	}
}
