package winos

import "testing"

func TestAccessIsAdministratorsOnlyWhenNobodyElseGetsIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sddl string
		want Access
	}{
		"the access of the daemon's files":        {administratorsFile, AccessAdministrators},
		"the access of the daemon's directories":  {administratorsDirectory, AccessAdministrators},
		"the access of files that users may read": {usersDirectory, AccessInherit},
		"as Windows writes it back": {"O:BAG:S-1-5-21-1-2-3-513D:PAI(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)",
			AccessAdministrators},
		"identifiers in full": {"O:S-1-5-32-544D:P(A;;FA;;;S-1-5-32-544)(A;;0x1f01ff;;;S-1-5-18)",
			AccessAdministrators},
		"SYSTEM owns it":                            {"O:SYD:P(A;;FA;;;SY)", AccessAdministrators},
		"a denial grants no access":                 {"O:BAD:P(D;;FA;;;WD)(A;;FA;;;BA)", AccessAdministrators},
		"an audit list behind it":                   {"O:BAD:P(A;;FA;;;BA)S:AI(AU;SAFA;FA;;;WD)", AccessAdministrators},
		"users may read":                            {"O:BAD:P(A;;FA;;;BA)(A;;FR;;;BU)", AccessInherit},
		"another user owns it":                      {"O:S-1-5-21-1-2-3-1001D:P(A;;FA;;;BA)", AccessInherit},
		"another user has access":                   {"O:BAD:P(A;;FA;;;S-1-5-21-1-2-3-1001)", AccessInherit},
		"entries are inherited":                     {"O:BAD:AI(A;ID;FA;;;BA)(A;ID;FA;;;SY)", AccessInherit},
		"one entry is inherited, among flags":       {"O:BAD:P(A;;FA;;;BA)(A;OICIID;FA;;;SY)", AccessInherit},
		"a missing list grants access to everybody": {"O:BAD:NO_ACCESS_CONTROL", AccessInherit},
		"an empty list":                             {"O:BAD:P", AccessInherit},
		"no list at all":                            {"O:BA", AccessInherit},
		"nothing":                                   {"", AccessInherit},
		"an entry of a kind that we do not know":    {`O:BAD:P(XA;;FA;;;BA;(@User.Title=="x"))`, AccessInherit},
		"an entry that is cut off":                  {"O:BAD:P(A;;FA", AccessInherit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := accessOf(test.sddl); got != test.want {
				t.Errorf("accessOf(%q) = %v, want %v", test.sddl, got, test.want)
			}
		})
	}
}

func TestADirectoryIsForeignWhenOthersMayReplaceWhatLiesInIt(t *testing.T) {
	t.Parallel()
	const user = "S-1-5-21-1-2-3-1001"
	for name, test := range map[string]struct {
		sddl string
		want bool
	}{
		"ours":           {administratorsDirectory, false},
		"ours, and open": {usersDirectory, false},
		"as an administrator makes it where C:\\ hands down Modify": {"O:BAG:BAD:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)" +
			"(A;OICIID;0x1200a9;;;BU)(A;OICIID;0x1301bf;;;AU)", true},
		"as an administrator makes it in C:\\": {"O:BAG:BAD:AI(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)" +
			"(A;OICIID;0x1200a9;;;BU)(A;CIID;LC;;;BU)(A;CIID;DC;;;BU)(A;OICIIOID;GA;;;CO)", false},
		"as a user makes it in C:\\":                {"O:" + user + "G:BAD:AI(A;OICIID;FA;;;SY)(A;ID;FA;;;" + user + ")", true},
		"a user may delete in it":                   {"O:BAD:(A;;FA;;;BA)(A;;0x40;;;BU)", true},
		"a user may delete in it, in letters":       {"O:BAD:(A;;FA;;;BA)(A;;CCDCDT;;;BU)", true},
		"a user may rename it":                      {"O:BAD:(A;;FA;;;BA)(A;OICI;0x1301bf;;;BU)", true},
		"a user may rename it, in letters":          {"O:BAD:(A;;FA;;;BA)(A;OICI;FRSD;;;BU)", true},
		"a user may change its rights":              {"O:BAD:(A;;WD;;;BU)", true},
		"a user may own it":                         {"O:BAD:(A;;WO;;;AU)", true},
		"everybody has full access":                 {"O:BAD:(A;;FA;;;WD)", true},
		"for new entries only":                      {"O:BAD:(A;OICIIO;FA;;;CO)(A;;FA;;;BA)", false},
		"a denial":                                  {"O:BAD:(D;;FA;;;BU)(A;;FA;;;BA)", false},
		"without a list":                            {"O:BA", true},
		"an entry of a kind that we do not know":    {`O:BAD:(XA;;FR;;;BA;(@User.Title=="x"))`, true},
		"nothing, as on a file system without them": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := foreign(test.sddl); got != test.want {
				t.Errorf("foreign(%q) = %v", test.sddl, got)
			}
		})
	}
}
