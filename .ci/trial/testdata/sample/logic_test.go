//go:build !windows

package sample

import "testing"

func TestLogic(t *testing.T) {}
