package verbs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	guestToolsDir  = `C:\ProgramData\VMware\VMware Tools`
	guestToolsConf = guestToolsDir + `\tools.conf`
)

// hidesAddress reports whether VMware Tools will stop reporting the host's address to vCenter. This happens if the
// setting exclude-nics matches the interface that gets the address from HNS. The default setting does. The
// configuration of VMware Tools is like an INI file. exclude-nics is a list of names with the wildcards * and ?.
// Source: the comments in tools.conf of https://github.com/vmware/open-vm-tools.
func hidesAddress(files winos.Files) (bool, error) {
	if installed, err := winos.Exists(files, guestToolsDir); err != nil || !installed {
		return false, err
	}
	file, err := winos.OpenClosed(files, guestToolsConf)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	excluded, section := "vEthernet*", ""
	lines := bufio.NewScanner(io.LimitReader(file, bufio.MaxScanTokenSize-1))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if key, value, _ := strings.Cut(line, "="); section == "[guestinfo]" &&
			strings.TrimSpace(key) == "exclude-nics" {
			excluded = value
		}
	}
	hides := slices.ContainsFunc(strings.Split(excluded, ","), func(pattern string) bool {
		matches, _ := path.Match(strings.TrimSpace(pattern), "vEthernet (Ethernet0)")
		return matches
	})
	return hides, errors.Join(lines.Err(), file.Close())
}
