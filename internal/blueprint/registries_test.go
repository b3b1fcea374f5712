package blueprint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestRegistriesReachNodesWithWhatEveryPodNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raw      contract.RegistrySources
		want     *contract.RegistrySources
		rejected string
	}{
		"nothing is said": {},
		"insecure only": {
			raw:  contract.RegistrySources{Insecure: []string{"M.example:5000"}},
			want: &contract.RegistrySources{Insecure: []string{"m.example:5000"}},
		},
		"the image that every pod needs is never refused": {
			raw: contract.RegistrySources{Blocked: []string{"mcr.microsoft.com"}},
			want: &contract.RegistrySources{Blocked: []string{"mcr.microsoft.com"},
				Always: []string{"mcr.microsoft.com/oss/kubernetes/pause"}},
		},
		"what can't be read is named and allows nothing": {
			raw: contract.RegistrySources{Restricted: true, Allowed: []string{"https://quay.io"}},
			want: &contract.RegistrySources{Restricted: true,
				Always: []string{"mcr.microsoft.com/oss/kubernetes/pause"}},
			rejected: "allowedRegistries",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.Facts.Registries = c.raw
			desired := render(t, in)
			if diff := cmp.Diff(c.want, desired.Confidential.Registries); diff != "" {
				t.Error(diff)
			}
			named := slices.ContainsFunc(desired.Rejected,
				func(p *contract.Problem) bool { return strings.Contains(p.Detail, "allowedRegistries") })
			if named != (c.rejected != "") {
				t.Errorf("rejected: %v", desired.Rejected)
			}
		})
	}
}
