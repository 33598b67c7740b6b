package main

import "slices"

// order returns the files in the order of use: with few references that point upwards. To
// find the fewest is the feedback arc set problem, which is NP-hard; so each file is moved
// to its best place until none gains by a move.
func (p *pkg) order() []string {
	order := slices.Sorted(slices.Values(p.files))
	slices.SortStableFunc(order, func(a, b string) int { return p.balance(b) - p.balance(a) })
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(order) {
			moved = p.move(order, file) || moved
		}
	}
	return order
}

// balance is how many more files a file uses than use it.
func (p *pkg) balance(file string) (n int) {
	for pair := range p.references {
		switch file {
		case pair[0]:
			n++
		case pair[1]:
			n--
		}
	}
	return n
}

// move moves a file to its best place, and reports whether that gains something.
func (p *pkg) move(order []string, file string) bool {
	from := slices.Index(order, file)
	best, to := 0, from
	gain := 0
	for at := from + 1; at < len(order); at++ { // downwards
		gain += p.gain(order[at], file)
		if gain > best {
			best, to = gain, at
		}
	}
	gain = 0
	for at := from - 1; at >= 0; at-- { // upwards
		gain += p.gain(file, order[at])
		if gain > best {
			best, to = gain, at
		}
	}
	if best == 0 {
		return false
	}
	copy(order[from:], order[from+1:])
	copy(order[to+1:], order[to:len(order)-1])
	order[to] = file
	return true
}

// gain is by how many fewer references climb if upper stands above lower instead of below.
func (p *pkg) gain(upper, lower string) (n int) {
	if p.references[[2]string{upper, lower}] != nil {
		n++
	}
	if p.references[[2]string{lower, upper}] != nil {
		n--
	}
	return n
}

// climbing returns the references that point upwards in the order of use.
func (p *pkg) climbing() (climbing [][2]string) {
	place := make(map[string]int)
	for i, file := range p.order() {
		place[file] = i
	}
	for pair := range p.references {
		if place[pair[0]] > place[pair[1]] {
			climbing = append(climbing, pair)
		}
	}
	slices.SortFunc(climbing, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return climbing
}
