// Package sample has a mistake for each platform but linux/amd64.
package sample

import "fmt"

// Number has 64 bits on some processors.
var Number int = number

// Print uses what it imports.
func Print() { fmt.Println(Number) }
