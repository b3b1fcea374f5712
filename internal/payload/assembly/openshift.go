package assembly

// OpenShift returns the first and the last release of OpenShift whose Kubernetes minor version is from `oldest` to
// `newest`. If there is no such release, OpenShift returns empty strings. The releases are in a table, because their
// numbers follow no rule: after 4.22 comes 5.0 (the branches of github.com/openshift/kubernetes, September 2026).
func OpenShift(oldest, newest uint) (first, last string) {
	for _, r := range []struct {
		minor   uint
		release string
	}{{32, "4.19"}, {33, "4.20"}, {34, "4.21"}, {35, "4.22"}, {36, "5.0"}} {
		if r.minor < oldest || r.minor > newest {
			continue
		}
		if first == "" {
			first = r.release
		}
		last = r.release
	}
	return first, last
}
