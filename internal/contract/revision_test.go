package contract

import "testing"

func TestAVersionNamesItsManifestOnly(t *testing.T) {
	t.Parallel()
	m := sample()
	other := sample()
	other.Files[1].Content += " "
	digest := m.Digest()
	for version, want := range map[string]bool{
		"0.1.0-" + digest[:10]: true, "1.2.3-rc-1-" + digest[:10]: true, "0.1.0-" + digest[:9]: false,
		"0.1.0" + digest[:10]:          false,
		"0.1.0-" + other.Digest()[:10]: false, "": false, digest: false,
	} {
		if IsRevisionOf(version, m) != want {
			t.Errorf("%q: want %v", version, want)
		}
	}
}
