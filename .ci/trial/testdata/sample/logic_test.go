//go:build !windows

package sample

import (
	"os"
	"testing"
)

func TestLogic(t *testing.T) {}

// TestRed fails where a test of the runner wants it.
func TestRed(t *testing.T) {
	if os.Getenv("SAMPLE") == "red" {
		t.Fatal("as it always does")
	}
}
