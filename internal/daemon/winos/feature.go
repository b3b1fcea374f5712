package winos

// featureState reads a DismPackageFeatureState:
// https://learn.microsoft.com/en-us/windows-hardware/manufacture/desktop/dism/dismpackagefeaturestate-enumeration.
// One that is going away with the next boot counts as absent, and so does one that is there in
// part: enabling is the right thing to do then.
func featureState(code uint32) FeatureState {
	switch code {
	case 4, 6: // installed; superseded by a newer one
		return FeatureEnabled
	case 5: // install pending
		return FeaturePending
	}
	return FeatureAbsent
}
