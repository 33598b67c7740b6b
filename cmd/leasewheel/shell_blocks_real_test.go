//go:build real && unix

package main

import "testing"

// The commands of every document that measure run as well.
func TestShellBlocksThatMeasure(t *testing.T) {
	t.Parallel()
	runBlocks(t, measures)
}
