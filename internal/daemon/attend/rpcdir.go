package attend

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Files in the RPC directory, in addition to the files of calls.
const (
	// LogFile is the service's log. It is here because the directory of the other logs may not exist yet.
	LogFile = "attend.log"

	certificateFile = "attend.pem"
	keyFile         = "attend.key"
)

type rpcDir struct {
	files winos.Files
	dir   string
}

func (p rpcDir) path(name string) string { return p.dir + `\` + name }

func (p rpcDir) read(name string, into any) error {
	var content []byte
	err := winos.UntilClosed(nil, func() (err error) {
		content, err = winos.ReadFile(p.files, p.path(name))
		return err
	})
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

func (p rpcDir) write(name string, value any) error {
	content, err := json.Marshal(value)
	if err == nil {
		err = winos.WriteFile(p.files, p.path(name), bytes.NewReader(content), winos.AccessAdministrators)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (p rpcDir) identity(uid string) apiclient.Identity {
	return apiclient.Identity{Files: p.files, Certificate: p.path(certificateFile), Pending: p.path(keyFile),
		User: contract.HostUserPrefix + uid, Groups: []string{contract.HostGroup}, Request: "windows-host-" + uid + "-"}
}

// Source returns the payload source for a host. `dir` is the path of the host's RPC directory.
func Source(files winos.Files, dir string) (payload.Source, error) {
	p, r := rpcDir{files, dir}, contract.Attendance{}
	if err := p.read(contract.HostStateFile, &r); err != nil {
		return nil, err
	}
	pair, err := p.identity(r.UID).LoadCertificate()
	if err != nil {
		return nil, err
	}
	client, err := payload.NewClient([]byte(r.CA), func() *tls.Certificate { return pair })
	if err != nil {
		return nil, err
	}
	return &payload.Server{Client: client, URLs: []string{strings.TrimRight(r.APIServer, "/") + r.Payload}}, nil
}
