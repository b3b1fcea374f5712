package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const featureContainers = "Containers"

// system is the machine-wide data of the registry.
type system struct {
	machineID, product string
	suffix             string // primary DNS suffix
	client             bool
	memory             int64

	mu               sync.Mutex
	hostname         string
	pendingName      string
	build, ubr       int
	features         map[string]winos.FeatureState
	featureFault     error
	rebootSigns      []string
	renames          []string
	exclusions       []string
	static, disabled bool // static: the address is static; disabled: the registry value DeviceLessNicDisabled is set
	gateways         []string
	// forgetful means that a boot discards a pending change of the host name, and that pending features remain pending.
	forgetful bool
}

func newSystem(o Options) *system {
	return &system{
		machineID: o.MachineID, product: o.ProductName, suffix: o.DNSSuffix, client: o.Client, memory: o.Memory,
		hostname: o.Hostname, build: o.Build, ubr: o.UBR, features: maps.Clone(o.Features),
		static: o.StaticAddress, disabled: o.DeviceLessNICDisabled, gateways: o.Gateways,
	}
}

// boot applies all changes that need a reboot.
func (s *system) boot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pendingName != "" && !s.forgetful {
		s.hostname = s.pendingName
	}
	s.pendingName = ""
	for name, state := range s.features {
		if state == winos.FeaturePending && !s.forgetful {
			s.features[name] = winos.FeatureEnabled
		}
	}
	s.rebootSigns, s.renames = nil, nil
}

func (s *system) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hostname
}

// facts returns the facts about the machine that s contains.
func (s *system) facts() winos.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	product := s.product
	if product == "" {
		product = productName(s.build, s.client)
	}
	full := s.hostname
	if s.suffix != "" {
		full += "." + s.suffix
	}
	return winos.Facts{
		Hostname: s.hostname, FullName: full, MachineID: s.machineID, ProductName: product, Server: !s.client,
		Build: s.build, UBR: s.ubr, Memory: s.memory,
		StaticAddress: s.static, DeviceLessNICDisabled: s.disabled, Gateways: slices.Clone(s.gateways),
		RebootSigns: slices.Clone(s.rebootSigns), ReplacedAtBoot: slices.Clone(s.renames),
	}
}

func productName(build int, client bool) string {
	if client {
		return "Windows 10 Pro" // also the name of Windows 11 in the registry
	}
	switch build {
	case 17763:
		return "Windows Server 2019 Datacenter"
	case 20348:
		return "Windows Server 2022 Datacenter"
	case 26100:
		return "Windows Server 2025 Datacenter"
	}
	return "Windows Server Datacenter"
}

func (s *system) setBuild(build, ubr int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.build, s.ubr = build, ubr
}

func (s *system) setRebootSigns(signs, renames []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebootSigns, s.renames = slices.Sorted(slices.Values(signs)), slices.Clone(renames)
}

// setHostname sets the host name that the next boot applies. If it is the current host name, setHostname cancels a
// pending change.
func (s *system) setHostname(name string) error {
	if err := checkHostname(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingName = name
	if name == s.hostname {
		s.pendingName = ""
	}
	return nil
}

// checkHostname returns an error if Windows doesn't accept a DNS host name. The name must be one label and must not
// consist of digits only.
func checkHostname(name string) error {
	legal := func(r rune) bool {
		return r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	digits := strings.Trim(name, "0123456789") == ""
	if name == "" || len(name) > 63 || digits || name[0] == '-' || strings.HasSuffix(name, "-") ||
		strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return fmt.Errorf("host name %q: %w", name, winos.ErrInvalidName)
	}
	return nil
}

// netBIOSName returns the short name of a computer that old interfaces of Windows show.
func netBIOSName(hostname string) string { return strings.ToUpper(hostname[:min(15, len(hostname))]) }

func (s *system) feature(name string) (winos.FeatureState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known, state := range s.features {
		if strings.EqualFold(known, name) {
			return state, nil
		}
	}
	return "", fmt.Errorf("feature %s: %w", name, winos.ErrNotFound)
}

func (s *system) setFeature(name string, state winos.FeatureState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known := range s.features {
		if strings.EqualFold(known, name) {
			name = known
		}
	}
	if state == "" {
		delete(s.features, name)
		return
	}
	s.features[name] = state
}

func (s *system) setFeatureFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.featureFault = err
}

func (s *system) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.featureFault
}

func (s *system) exclude(exe string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.exclusions, func(have string) bool { return fold(have) == fold(exe) }) {
		s.exclusions = append(s.exclusions, exe)
	}
}

// DefenderExclusions returns the exes that Windows Defender doesn't scan.
func (m *Machine) DefenderExclusions() []string {
	m.system.mu.Lock()
	defer m.system.mu.Unlock()
	return slices.Clone(m.system.exclusions)
}
