package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// kubernetesModule is the module whose version the control plane reports.
const kubernetesModule = "k8s.io/kubernetes"

// linkerFlags returns the -ldflags value: no symbol tables, and the version of the pinned module. Without these flags,
// the programs would report v0.0.0-master. The build date is the date of the module, so that the same pins produce the
// same programs.
func (b *builder) linkerFlags(ctx context.Context) (string, error) {
	output, err := b.goTool(ctx, "list", "-mod=readonly", "-m", "-json", kubernetesModule).Output()
	if err != nil {
		return "", fmt.Errorf("asking for the pinned version of %s: %w", kubernetesModule, err)
	}
	var module struct {
		Version string
		Time    time.Time
	}
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("reading the pinned version of %s: %w", kubernetesModule, err)
	}
	return linkerFlagsFor(module.Version, module.Time)
}

func linkerFlagsFor(version string, date time.Time) (string, error) {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(numbers) != 3 {
		return "", fmt.Errorf("reading the pinned version of %s: %q is not of the form v1.2.3", kubernetesModule,
			version)
	}
	flags := []string{"-s", "-w"}
	for _, setting := range [][2]string{
		{"gitVersion", version},
		{"gitMajor", numbers[0]},
		{"gitMinor", numbers[1]},
		{"gitTreeState", "clean"},
		{"buildDate", date.UTC().Format(time.RFC3339)},
	} {
		flags = append(flags, "-X", "k8s.io/component-base/version."+setting[0]+"="+setting[1])
	}
	return strings.Join(flags, " "), nil
}
