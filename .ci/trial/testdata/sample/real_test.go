//go:build real && !never

package sample

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(m.Run()) }

func TestPasses(t *testing.T) {}

func TestFails(t *testing.T) { t.Fatal("as it always does") }

func TestSkips(t *testing.T) { t.Skip("for want of a server") }
