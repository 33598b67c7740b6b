package machine

// Apart is the part of a state that a store may keep apart from the rest, such as in columns:
// the owner of a mutex or a fair lock, and the last token.
type Apart struct {
	Owner string // empty: none
	Holds int64
	Ends  int64 // the last ms of the owner's lease, since 1970
	Token int64
}

// Split removes the part from the state, with queues that are empty. plain reports whether
// nothing is left. Join is its reverse.
func (s *State) Split() (a Apart, plain bool) {
	a.Token, s.token = s.token, 0
	if l := s.lock; l.mode == exclusive {
		a.Owner, a.Holds, a.Ends = l.owner, l.holds, int64(l.ends)
		s.lock = lock{}
	}
	if len(s.queue.waiters) == 0 && s.queue.window == 0 {
		s.queue = waitQueue{}
	}
	if len(s.fair.order) == 0 && len(s.fair.places) == 0 {
		s.fair = fairQueue{}
	}
	return a, s.lock.mode == free && s.queue.ends == 0 && s.fair.ends == 0 && s.claim.owner == "" &&
		!s.count.exists && len(s.permits.expire) == 0 && len(s.outcomes) == 0
}

// Join adds the part to a state that was split.
func (s *State) Join(a Apart) {
	if s.token = a.Token; a.Owner != "" {
		s.lock = lock{mode: exclusive, owner: a.Owner, holds: a.Holds, ends: end(a.Ends)}
	}
}
