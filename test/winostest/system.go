package winostest

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func systemCases() []testCase {
	return []testCase{
		{name: "the facts make sense and stay", run: systemFacts},
		{name: "the clock goes forward", run: systemClock},
		{name: "a host name that Windows refuses is refused", run: systemHostnameRefused},
		{name: "a feature that does not exist is not found", needs: []Ability{Features}, run: systemFeatureMissing},
		{name: "an exclusion from Defender can be repeated", run: systemDefender},
		{name: "a reboot changes the boot id and ends all processes", whole: true, run: systemReboot},
		{name: "a host name takes effect with the next boot", whole: true, run: systemHostname},
		{name: "a feature is enabled by the next boot at the latest", needs: []Ability{Features}, whole: true,
			run: systemFeature},
	}
}

func (m machine) facts(t *testing.T) winos.Facts {
	t.Helper()
	facts, err := m.Host.System.Facts(t.Context())
	noError(t, err)
	return facts
}

func systemFacts(m machine) {
	t := m.t
	facts := m.facts(t)
	for what, wrong := range map[string]bool{
		"no host name":          facts.Hostname == "",
		"a host name with dots": strings.Contains(facts.Hostname, "."),
		"another full name": facts.FullName != facts.Hostname && (!strings.HasPrefix(facts.FullName,
			facts.Hostname+".") || strings.HasSuffix(facts.FullName, ".")),
		"no machine id":                 facts.MachineID == "",
		"no boot id":                    facts.BootID == "",
		"no product name":               facts.ProductName == "",
		"no build":                      facts.Build < 10000,
		"no administrator":              !facts.Admin,
		"no memory":                     facts.Memory < 1<<28,
		"no disk":                       facts.DiskTotal <= 0,
		"more of the disk free than is": facts.DiskFree < 0 || facts.DiskFree > facts.DiskTotal,
	} {
		if wrong {
			t.Errorf("the machine's facts are wrong: %s: %+v", what, facts)
		}
	}
	again := m.facts(t)
	again.DiskFree = facts.DiskFree
	if !reflect.DeepEqual(again, facts) {
		t.Errorf("the machine's facts were %+v, and are %+v", facts, again)
	}
}

func systemClock(m machine) {
	t := m.t
	before := m.Host.System.Now()
	if before.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the clock shows %v", before)
	}
	if before != before.Round(0) {
		t.Errorf("the clock does not advance: %v", before)
	}
	eventually(t, "time passes", func() bool { return m.Host.System.Now().After(before) })
}

func systemHostnameRefused(m machine) {
	t := m.t
	before := m.facts(t).Hostname
	for _, name := range []string{"", "a b", "a_b", "a.b", "-a", "a-", "123", "ä", strings.Repeat("x", 64), "a\x00"} {
		isError(t, "setting "+name, m.Host.System.SetHostname(t.Context(), name), winos.ErrInvalidName)
	}
	if after := m.facts(t).Hostname; after != before {
		t.Errorf("the host name was %s, and is %s", before, after)
	}
}

func systemFeatureMissing(m machine) {
	t := m.t
	_, err := m.Host.System.Feature(t.Context(), "Wmco-No-Such-Feature")
	isError(t, "looking", err, winos.ErrNotFound)
	if err := m.Host.System.EnableFeature(t.Context(), "Wmco-No-Such-Feature"); err == nil {
		t.Error("a feature that does not exist was enabled")
	}
}

func systemDefender(m machine) {
	t := m.t
	for range 2 {
		noError(t, m.Host.System.ExcludeFromDefender(t.Context(), m.dir+`\nobody.exe`))
	}
}

func systemReboot(m machine) {
	t := m.t
	before := m.facts(t)
	m.write(t, m.dir+`\stays`, "x")
	m.Reboot(t)
	after := m.facts(t)
	if after.BootID == before.BootID {
		t.Error("the boot id is the same")
	}
	if after.Hostname != before.Hostname || after.FullName != before.FullName ||
		after.MachineID != before.MachineID {
		t.Errorf("the machine was %+v, and is %+v", before, after)
	}
	if have := m.read(t, m.dir+`\stays`); have != "x" {
		t.Errorf("the file holds %q", have)
	}
}

func systemHostname(m machine) {
	t := m.t
	before := m.facts(t).Hostname
	t.Cleanup(func() { m.rename(t, before) })
	noError(t, m.Host.System.SetHostname(t.Context(), "Wmco-Test-1"))
	if have := m.facts(t).Hostname; have != before {
		t.Errorf("before the reboot, the host name is %s, want %s", have, before)
	}
	m.Reboot(t)
	if have := m.facts(t).Hostname; have != "Wmco-Test-1" {
		t.Errorf("after the reboot, the host name is %s", have)
	}
}

func (m machine) rename(t *testing.T, name string) {
	t.Helper()
	noError(t, m.Host.System.SetHostname(context.WithoutCancel(t.Context()), name))
	m.Reboot(t)
}

func systemFeature(m machine) {
	t := m.t
	const name = "Containers"
	noError(t, m.Host.System.EnableFeature(t.Context(), name))
	state, err := m.Host.System.Feature(t.Context(), name)
	noError(t, err)
	if state == winos.FeaturePending {
		m.Reboot(t)
		state, err = m.Host.System.Feature(t.Context(), name)
		noError(t, err)
	}
	if state != winos.FeatureEnabled {
		t.Errorf("the feature is %s", state)
	}
	noError(t, m.Host.System.EnableFeature(t.Context(), name))
	if state, err = m.Host.System.Feature(t.Context(), name); err != nil || state != winos.FeatureEnabled {
		t.Errorf("after it was enabled again, the feature is %s: %v", state, err)
	}
}
