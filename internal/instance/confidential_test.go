package instance_test

import (
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// A host receives the confidential part during its join. Otherwise services would restart when the daemon can read
// this part itself.
func TestAHostGetsTheConfidentialPartWithItsManifest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil   string
		verdict string
		reason  contract.Reason
	}{
		"the one that the manifest names": {"", "done", ""},
		"never another one":               {"aa", "fails", contract.ReasonManifestInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.desired.Confidential = contract.Confidential{Salt: []byte("0123456789abcdef"),
				Environment: map[string]string{"HTTP_PROXY": "http://me:pw@proxy"}}
			data, sum, err := w.desired.Confidential.Encode()
			if err != nil {
				t.Fatal(err)
			}
			w.desired.Manifest.Confidential = sum + test.spoil
			w.desired.Manifest.ConfidentialEnvironment = w.desired.Confidential.EnvironmentDigest()
			i, session := newInstance(), &journey.Session{}
			want(t, w.join(t, i, session, v1alpha1.PhaseBootstrapping), test.verdict, test.reason)
			told := contract.BootstrapRequest{}
			asked, err := w.machine.Request(contract.VerbBootstrap, &told)
			if err != nil {
				t.Fatal(err)
			}
			if asked != (test.verdict == "done") || asked && string(told.Confidential) != string(data) {
				t.Errorf("the host was told the confidential part %q", told.Confidential)
			}
			looked := contract.PreflightRequest{}
			if _, err = w.machine.Request(contract.VerbPreflight, &looked); err != nil ||
				looked.NodeName != contract.FactHostname {
				t.Errorf("the preflight's source of the node name is %q, %v", looked.NodeName, err)
			}
		})
	}
}
