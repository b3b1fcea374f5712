package winos

import (
	"errors"
	"reflect"
	"testing"
)

func TestTheVersionOfWindowsIsDescribed(t *testing.T) {
	t.Parallel()
	server := version{CurrentBuildNumber: "20348", UBR: 2700, ProductName: "Windows Server 2022 Datacenter",
		ProductType: "ServerNT"}
	for name, test := range map[string]struct {
		registry version
		kernel   int
		want     Facts
		err      error
	}{
		"a server": {server, 20348, Facts{Build: 20348, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"the kernel knows better than the registry": {server, 26100,
			Facts{Build: 26100, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"the registry alone": {server, 0,
			Facts{Build: 20348, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"a domain controller is a server": {version{CurrentBuildNumber: "17763", ProductType: "LanmanNT"}, 17763,
			Facts{Build: 17763, Server: true}, nil},
		"a client": {version{CurrentBuildNumber: "22631", ProductType: "WinNT"}, 22631,
			Facts{Build: 22631}, nil},
		"no build anywhere":         {version{}, 0, Facts{}, ErrNotFound},
		"a build that is no number": {version{CurrentBuildNumber: "x"}, 0, Facts{}, ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Facts
			if err := test.registry.describe(&got, test.kernel); !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if test.err == nil && !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
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
