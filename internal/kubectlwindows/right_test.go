package kubectlwindows_test

import (
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// rightsOfThePage gives a user the role in the documentation. With this role, all commands that only read must work,
// and all commands that change something must fail.
func rightsOfThePage(t *testing.T, at *terminal) {
	t.Helper()
	page, err := os.ReadFile("../../docs/plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	role := &rbacv1.ClusterRole{}
	if err = yaml.UnmarshalStrict([]byte(text), role); err != nil {
		t.Fatal(err)
	}
	at.create(t, role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}}})
	viewer := at.as(t, "viewer")
	for name, args := range map[string][]string{
		"status": {"status"}, "why": {"why", "10.0.0.2"}, "why of a pod": {"why", "pod/win-1", "-n", "default"},
		"drain-status": {"drain-status", "win-1"}, "lint": {"lint", "--live", "-A"},
	} {
		if code, out, errOut := viewer.run(t.Context(), "", args...); code == 1 || strings.Contains(out, "UNREAD") {
			t.Errorf("%s: %d\n%s%s", name, code, out, errOut)
		}
	}
	for name, args := range map[string][]string{
		"pause": {"pause", "10.0.0.2"}, "remove": {"remove", "10.0.0.2", "--yes", "--force"},
		"add": {"add", "10.0.0.8", "--username", "x"}, "logs": {"logs", "win-1"}, "reboot": {"reboot", "win-1", "--yes"},
	} {
		if code, _, errOut := viewer.run(t.Context(), "", args...); code != 1 {
			t.Errorf("%s: %d\n%s", name, code, errOut)
		}
	}
}
