//go:build !windows

package sample

const number = 1 << 40
