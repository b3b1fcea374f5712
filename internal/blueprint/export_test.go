package blueprint

// KubeletFieldIsDecided says whether it is written down if a user may set a field.
func KubeletFieldIsDecided(name string) bool {
	_, decided := kubeletFields()[name]
	return decided
}
