package chaos

import "sync"

// reports are the events of one process.
type reports struct {
	number int

	mu      sync.Mutex
	isDead  bool // it was killed
	died    instant
	client  string
	events  []event
	reached map[string]bool // the phases that it has reached
}

func newReports(number int) reports {
	return reports{number: number, died: forever, reached: map[string]bool{}}
}

// add adds an event.
func (p *reports) add(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	switch e.What {
	case evReady:
		p.client = e.Owner
		fallthrough
	case evFinished, evProbed, evClosed:
		p.reached[e.What] = true
	}
}

func (p *reports) has(phase string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached[phase]
}

func (p *reports) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isDead
}
