package contention

// Jain returns Jain's index of fairness: 1 if all have got the same, 1/n if one of
// n has got everything. Nobody is treated unfairly where there was nothing to get.
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
