package elect

// OnFailStop replaces the end of the process, by f. It is called before Run.
func (e *Election) OnFailStop(f func(reason string)) { e.failStop.exit = f }
