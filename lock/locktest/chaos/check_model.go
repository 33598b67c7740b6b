package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The operations and the state of the model of a lock with fencing.
type (
	step struct {
		id    int
		kind  kind
		ends  bool
		token int64
		count int64
	}
	lockState struct {
		holders string // ids of the holders, each between commas
		writing bool
		last    int64 // the largest token
		write   int64 // the largest token except those of readers
	}
)

// lockModel defines the valid histories of grants and ends. A grant needs room beside the
// present holders, and a token larger than those before. A lease ends at some instant
// after it was last seen valid.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{holders: ","} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(lockState), input.(step)
		id := fmt.Sprintf(",%d,", op.id)
		if op.ends {
			if !strings.Contains(s.holders, id) {
				return false, s
			}
			s.holders = strings.Replace(s.holders, id, ",", 1)
			s.writing = s.writing && s.holders != ","
			return true, s
		}
		free := s.holders == ","
		switch op.kind {
		case readKind:
			if s.writing || op.token <= s.write || op.token < s.last {
				return false, s
			}
		case permitsKind:
			if strings.Count(s.holders, ",") > int(op.count) || op.token <= s.last {
				return false, s
			}
		default:
			if !free || op.token <= s.last {
				return false, s
			}
			s.writing = true
		}
		if op.kind != readKind {
			s.write = max(s.write, op.token)
		}
		s.last = max(s.last, op.token)
		s.holders += id[1:]
		return true, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// checkModel makes porcupine search for an order of grants and ends that the model
// allows. A lock is left to the other checkers, which account for a fault's duration, if a fault of
// the round voids exclusion, or one between its grants voids growth.
func (r *judge) checkModel(h *history) {
	for name, uses := range h.named(r.plan, mutexKind, electionKind, fairKind, readKind, writeKind, permitsKind) {
		held := granted(uses)
		if len(held) == 0 {
			continue
		}
		if len(r.voidsExclusion(r.begun, forever)) > 0 || r.voidsGrowth(held[0].call, held[len(held)-1].back) {
			r.tally.excuse(linearizable)
			continue
		}
		switch porcupine.CheckOperationsTimeout(lockModel, operations(held), 10*time.Second) {
		case porcupine.Ok:
			r.tally.check(linearizable, 2*len(held))
		case porcupine.Unknown:
			r.tally.excuse(linearizable)
		case porcupine.Illegal:
			r.tally.check(linearizable, 2*len(held))
			r.broke(linearizable, held[0].call, held[len(held)-1].back, fmt.Sprintf("no lock explains the %d grants of %q", len(held), short(name)))
		}
	}
}

// operations are the grants and ends of uses.
func operations(held []*use) (ops []porcupine.Operation) {
	const never = int64(forever) - 1
	for i, u := range held {
		input := step{id: i + 1, kind: u.kind, token: u.token, count: u.count}
		ops = append(ops, porcupine.Operation{ClientId: 2 * i, Input: input, Call: int64(u.call), Return: int64(u.back)})
		input.ends = true
		end := never
		if u.releaseOK && u.released != forever {
			end = int64(u.released)
		}
		ops = append(ops, porcupine.Operation{ClientId: 2*i + 1, Input: input, Call: int64(max(u.valid, u.back)), Return: max(end, int64(max(u.valid, u.back))+1)})
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return ops
}
