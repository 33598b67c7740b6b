//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Names are completed by the locks that are held, but for those that a shell or a terminal
// might act upon.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	locks(t, client)
	for _, name := range []string{
		"orders:$(id)", "orders: x", "orders*", "orders:[a]", "orders:{a,b}", "orders:{1..3}", "orders:^a", "#orders", "=orders", "--store=evil",
	} {
		require.NoError(t, client.HSet(t.Context(), name, java+":1", 1).Err())
	}
	for _, c := range []struct {
		args    []string
		offered []string
	}{
		{[]string{"inspect", ""}, []string{"fair", "orders:42", "orders:7", "report"}},
		{[]string{"inspect", "orders:"}, []string{"orders:42", "orders:7"}},
		{[]string{"inspect", "orders*"}, nil},
		{[]string{"inspect", "fair", ""}, nil},
		{[]string{"unlock", "--force", "orders:42", "orders:"}, []string{"orders:7"}},
		{[]string{"ls", "re"}, []string{"report"}},
		{[]string{"watch", "re"}, []string{"report"}},
		{[]string{"run", "--ttl", "5s", "re"}, []string{"report"}},
		{[]string{"ls", "--prefix", "orders:", ""}, []string{"42", "7"}},
		{[]string{"ls", "--format", "plain", ""}, nil},
	} {
		offered, directive := completed(t, env, c.args...)
		assert.Equal(t, c.offered, append([]string(nil), offered...), c.args)
		assert.Equal(t, noFiles, directive, c.args)
	}
}

// Without an answer of the server nothing is completed, soon and in silence.
func TestCompletionWithoutAServer(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	server.Pause()
	defer server.Resume()
	for _, env := range [][]string{env, {connect.URLVariable + "="}, {connect.URLVariable + "=ftp://x"}} {
		offered, directive := completed(t, env, "inspect", "")
		assert.Empty(t, offered)
		assert.Equal(t, noFiles, directive)
	}
}

// A shell for which there is no script is named, with those for which there is one.
func TestCompletionOfAnUnknownShell(t *testing.T) {
	t.Parallel()
	p := commandtest.Call(t, nil, "completion", "tcsh")
	assert.Equal(t, exit.Usage, p.Wait())
	assert.Empty(t, p.Stdout.String())
	p.RequireOneLine(`unknown shell "tcsh"; accepted are bash, fish, powershell, zsh`)
	p = commandtest.Call(t, nil, "completion")
	assert.Equal(t, exit.OK, p.Wait())
	assert.Contains(t, p.Stdout.String(), "completion SHELL")
	p = commandtest.Call(t, nil, "completion", "bash", "zsh")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("takes no arguments")
}
