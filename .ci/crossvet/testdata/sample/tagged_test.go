//go:build tagged

package sample

const tagged = 1
