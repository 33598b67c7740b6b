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

// TestFailsOnce fails in the first of several runs.
func TestFailsOnce(t *testing.T) { once(t, "late") }

// TestBreaksOnce breaks a promise in the first of several runs.
func TestBreaksOnce(t *testing.T) { once(t, "broken promise: two holders") }

func once(t *testing.T, problem string) {
	if os.Mkdir(os.Getenv("SAMPLE_MARK"), 0o700) == nil {
		t.Fatal(problem)
	}
}
