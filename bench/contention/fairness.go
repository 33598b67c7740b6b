package contention

// Jain returns Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has
// everything. It is 1 if all shares are 0.
func Jain(got []int64) float64 {
	var sum, squares float64
	for _, n := range got {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}
