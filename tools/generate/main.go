// Command generate writes the pages that follow from the code:
//
// - docs/reference/api.md, from the generated custom resource definitions
// - docs/reference/reasons.md, from the numbered reasons and the reasons of certificate decisions
// - docs/reference/acceptance-tests.md, from the names of tests
// - docs/reference/upgrade-steps.md, from the table of an upgrade's steps
// - docs/reference/daemon-steps.md, from the table of the daemon's steps
// - docs/reference/support.md, from the pinned versions
// - config/dashboard/grafana/windows-nodes.json, from the dashboard for OpenShift's console
// - docs/plugin.svg, from the plugin's output during a run with simulated hosts
//
// `make generate` runs it in the top directory of the repository, after it has generated the definitions. It is not
// part of the product. Its test checks that the committed pages are up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes every page below root, the top directory of the repository.
func run(root string) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for _, p := range all {
		if err = os.WriteFile(filepath.Join(root, filepath.FromSlash(p.path)), p.content, 0o644); err != nil {
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}

// page is one generated document. Its path is relative to the top directory of the repository, with slashes.
type page struct {
	path    string
	content []byte
}

func pages(root string) ([]page, error) {
	api, err := apiPage(root)
	if err != nil {
		return nil, fmt.Errorf("writing the API reference: %w", err)
	}
	reasons, err := reasonPage(root)
	if err != nil {
		return nil, fmt.Errorf("writing the list of reasons: %w", err)
	}
	acceptance, err := acceptancePage(root)
	if err != nil {
		return nil, fmt.Errorf("writing the tests of the acceptance list: %w", err)
	}
	support, err := supportPage(root)
	if err != nil {
		return nil, fmt.Errorf("writing what is supported: %w", err)
	}
	plugin, err := pluginPicture(root)
	if err != nil {
		return nil, fmt.Errorf("drawing the plugin: %w", err)
	}
	dashboard, err := grafanaDashboard(root)
	if err != nil {
		return nil, fmt.Errorf("writing Grafana's dashboard: %w", err)
	}
	return []page{{path: "config/dashboard/grafana/windows-nodes.json", content: dashboard},
		{path: "docs/reference/support.md", content: support}, {path: "docs/plugin.svg", content: plugin},
		{path: "docs/reference/api.md", content: api},
		{path: "docs/reference/reasons.md", content: reasons},
		{path: "docs/reference/acceptance-tests.md", content: acceptance},
		{path: "docs/reference/upgrade-steps.md", content: upgradePage()},
		{path: "docs/reference/daemon-steps.md", content: trialPage()}}, nil
}
