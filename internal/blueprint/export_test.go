package blueprint

// KubeletFieldIsDecided reports whether kubeletFields has a decision for a field.
func KubeletFieldIsDecided(name string) bool {
	_, decided := kubeletFields()[name]
	return decided
}
