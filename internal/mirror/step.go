package mirror

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/contract"
)

// step is one server that containerd asks. One without a server is the registry of the image's
// name.
type step struct {
	server       string
	capabilities []string
	overridePath bool
	ca           string
	insecure     bool
	dialTimeout  string
	token        string
}

// What containerd may do at a server: pull what it knows by digest, and resolve tags.
const (
	capabilityPull    = "pull"
	capabilityResolve = "resolve"
)

func both() []string { return []string{capabilityPull, capabilityResolve} }

// How long containerd waits for a connection. The resolver is on loopback: it accepts at once or
// not at all, and Windows takes two seconds to give up a closed port. A mirror that does not answer
// must not hold up the next for containerd's own 30 seconds.
const (
	dialResolver = "1s"
	dialMirror   = "10s"
)

func resolverStep(endpoint Endpoint) step {
	return step{server: endpoint.URL, capabilities: both(), dialTimeout: dialResolver, token: endpoint.Token}
}

// mirrorSteps are the mirrors of a whole registry. containerd pulls by digest from every server,
// and by tag only from those that may resolve. So the digest mirrors come first and may not
// resolve; then the tag mirrors. A digest pull can reach a tag mirror this way, after all digest
// mirrors failed and only with the resolver down: what it gets there is checked against the digest.
func (r Rules) mirrorSteps(host string, whole entry, endpoint Endpoint) []step {
	digest, tag := whole.mirrors[contract.PullByDigest], whole.mirrors[contract.PullByTag]
	if slices.Equal(digest, tag) {
		digest = nil
	}
	var steps []step
	add := func(mirrors []location, suffix string, capabilities ...string) {
		for _, mirror := range mirrors {
			at, ok := whole.place(host, mirror)
			if !ok || r.nearNever(at) || at == (location{host: dockerHub}) && host != dockerHub {
				continue // the last: short names of Docker Hub would need library/, which can't be said
			}
			server := "https://" + address(at.host) + "/v2"
			if at.path != "" {
				server += "/" + at.path
			}
			steps = append(steps, step{
				server: server + suffix, capabilities: capabilities, overridePath: true,
				ca:       endpoint.CAs[at.host],
				insecure: r.scopes.insecure.cover(at), dialTimeout: dialMirror,
			})
		}
	}
	add(digest, "", capabilityPull)
	// The slash tells the two apart where a mirror is of both kinds; containerd drops it.
	add(tag, map[bool]string{true: "/"}[digest != nil], capabilityPull, capabilityResolve)
	return steps
}

// nearNever says whether some repository at or below the location must not be contacted.
func (r Rules) nearNever(at location) bool {
	for _, host := range spellings(at.host) {
		if slices.ContainsFunc(r.byHost[host], func(e entry) bool {
			_, within := below(e.source.path, at.path)
			return within && (e.never || r.blocks(e.source))
		}) {
			return true
		}
	}
	return r.forbids(at) || r.blocks(at)
}

// hostsFile is the form of containerd's hosts.toml, except for its host tables.
type hostsFile struct {
	Server string `toml:"server,omitempty"`
	hostTable
}

type hostTable struct {
	Capabilities []string            `toml:"capabilities,omitempty"`
	OverridePath bool                `toml:"override_path,omitempty"`
	CA           string              `toml:"ca,omitempty"`
	SkipVerify   bool                `toml:"skip_verify,omitempty"`
	DialTimeout  string              `toml:"dial_timeout,omitempty"`
	Header       map[string][]string `toml:"header,omitempty"`
}

func (s step) table() hostTable {
	table := hostTable{Capabilities: s.capabilities, OverridePath: s.overridePath, CA: s.ca,
		SkipVerify: s.insecure, DialTimeout: s.dialTimeout}
	if s.token != "" {
		table.Header = map[string][]string{TokenHeader: {Authorization(s.token)}}
	}
	return table
}

const hostsFileComment = "# Written by windows-instance-config-daemon from the cluster's mirror rules. Changes are " +
	"undone.\n"

// encode writes the steps: the last is the file's server, which containerd asks after all hosts.
func encode(steps []step) ([]byte, error) {
	last := steps[len(steps)-1]
	root, err := toml.Marshal(hostsFile{Server: last.server, hostTable: last.table()})
	if err != nil {
		return nil, err
	}
	file := append([]byte(hostsFileComment), root...)
	// A map has no order, but containerd takes hosts in that of the file. So each is written by
	// itself, without the line for the table of all.
	for _, s := range steps[:len(steps)-1] {
		host, err := toml.Marshal(map[string]map[string]hostTable{"host": {s.server: s.table()}})
		if err != nil {
			return nil, err
		}
		file = append(append(file, '\n'), bytes.TrimPrefix(host, []byte("[host]\n"))...)
	}
	if err := toml.Unmarshal(file, &map[string]any{}); err != nil {
		return nil, fmt.Errorf("reading it back: %w", err)
	}
	return file, nil
}
