//go:build !linux

package pgtest

import "time"

// CPU returns 0: only Linux has /proc.
func (s *Server) CPU() time.Duration { return 0 }
