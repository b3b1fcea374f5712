package winos

import "testing"

func TestADomainControllerIsAServer(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"ServerNT": true, "LanmanNT": true, "WinNT": false, "": false} {
		if got := isServer(kind); got != want {
			t.Errorf("%q is a server: %t", kind, got)
		}
	}
}

func TestStatesOfFeaturesAreThoseThatMatter(t *testing.T) {
	t.Parallel()
	want := []FeatureState{
		FeatureAbsent, FeatureAbsent, FeatureAbsent, FeatureAbsent, FeatureEnabled, FeaturePending, FeatureEnabled,
		FeatureAbsent, FeatureAbsent,
	}
	for code, state := range want {
		if got := featureState(uint32(code)); got != state {
			t.Errorf("state %d is %s, want %s", code, got, state)
		}
	}
}

func TestAFeatureThatNeedsARebootIsNoFailure(t *testing.T) {
	t.Parallel()
	for code, want := range map[uint32]bool{0: false, 1: false, 3010: false, 0x80070bc2: false, 0x80070005: true,
		0x800f080c: true} {
		if got := failed(code); got != want {
			t.Errorf("%#x is a failure: %v", code, got)
		}
	}
}
