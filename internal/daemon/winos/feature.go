package winos

// `failed` returns true if an HRESULT is an error. Negative values are errors. Exception: rebootRequired
// (ERROR_SUCCESS_REBOOT_REQUIRED) is a success. The method Feature then returns FeaturePending.
func failed(hr uint32) bool {
	const rebootRequired = 0x80070bc2
	return int32(hr) < 0 && hr != rebootRequired
}

// featureState converts a DismPackageFeatureState:
// https://learn.microsoft.com/en-us/windows-hardware/manufacture/desktop/dism/dismpackagefeaturestate-enumeration. A
// partly installed feature and a feature that the next boot removes count as absent, so that the daemon enables them.
func featureState(code uint32) FeatureState {
	switch code {
	case 4, 6: // installed, or superseded by a newer version
		return FeatureEnabled
	case 5: // install pending
		return FeaturePending
	}
	return FeatureAbsent
}
