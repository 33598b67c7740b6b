//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The output that the manual shows has the columns and the labels that the commands print.
func TestOutputBlocks(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	held := holder(t, env, "--permits", "2")
	output := func(args ...string) string {
		p := commandtest.Call(t, env, args...)
		p.Wait()
		require.NotEmpty(t, p.Stdout.String(), p.Stderr.String())
		return p.Stdout.String()
	}
	header := func(text string) []string { return strings.Fields(strings.SplitN(text, "\n", 2)[0]) }
	labels := func(text string) (all []string) {
		for _, match := range regexp.MustCompile(`(?m)^ *(\w[\w ]*?)  `).FindAllStringSubmatch(text, -1) {
			if len(all) == 0 || all[len(all)-1] != match[1] {
				all = append(all, match[1])
			}
		}
		return all
	}

	assert.Equal(t, header(textBlock(t, "docs/cli.md", "NAME ").text()), header(output("ls")))

	output("queue", "put", "mails", "dear Ada")
	assert.Equal(t, header(textBlock(t, "docs/cli.md", "ID ").text()), header(output("queue", "ls", "mails")))

	// One of two permits is in use, and one process waits for a semaphore that has none left.
	second := holder(t, env, "--permits", "2")
	waiting := commandtest.Start(t, env, run("job", sh("true"), "--permits", "2", "-v")...)
	waiting.AwaitError("waiting for lock")
	client := server.Client(t)
	commandtest.Eventually(t, "subscribed", func() bool {
		return client.PubSubNumSub(t.Context(), "redisson_sc:{job}").Val()["redisson_sc:{job}"] > 0
	})
	assert.Equal(t, labels(textBlock(t, "docs/cli.md", "lock  ").text()), labels(output("inspect", "--kind", "permits", "job")))
	for _, p := range []*commandtest.Process{held, second} {
		require.NoError(t, p.Stdin.Close())
		assert.Equal(t, 0, p.Wait())
	}
	assert.Equal(t, 0, waiting.Wait())

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	shown, printed := textBlock(t, "docs/cli.md", "SERVER ").text(), output("doctor")
	assert.Equal(t, header(shown), header(printed))
	_, finding, found := strings.Cut(shown, "\n\n")
	require.True(t, found)
	for i, line := range strings.Split(strings.TrimSpace(finding), "\n") {
		if i == 0 { // ERROR, the topic, the server
			line = strings.Join(strings.Fields(line)[:2], "  ")
		}
		assert.Contains(t, printed, strings.TrimSpace(line))
	}
}
