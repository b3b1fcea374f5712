package winos

// failed says whether an HRESULT is an error. Positive ones are kinds of success, and so is
// ERROR_SUCCESS_REBOOT_REQUIRED (3010) when DISM wraps it: Feature then answers Pending.
func failed(hr uint32) bool {
	const rebootRequired = 0x80070bc2
	return int32(hr) < 0 && hr != rebootRequired
}

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
