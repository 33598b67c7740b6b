//go:build !linux

package etcdstore

func systemClock() clock { return combinedClock() }
