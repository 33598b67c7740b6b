//go:build race

package peers

const raceDetector = true
